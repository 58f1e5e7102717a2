"""`manage.py sluice probe worker | beat`: whether the process lives, as an exit status."""

from typing import Any

import redis
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.core.jobs.heartbeat import ALIVE_S, is_alive, worker_name
from controlplane.core.jobs.lives import BEAT, WORKER


class Command(BaseCommand):
    """Looks for the sign of life of a process that listens on nothing."""

    help = (
        "Exit with 0 if the worker of this host, or beat, is alive; otherwise with 1 and the "
        "reason."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("process", choices=(WORKER, BEAT))
        parser.add_argument("--name", help="of a worker that was started with --hostname")

    def handle(self, *args: Any, **options: Any) -> None:
        process = options["process"]
        name = (options["name"] or worker_name()) if process == WORKER else ""
        told = f"{process} {name}".strip()
        try:
            alive = is_alive(process, name)
        except redis.RedisError as error:
            raise CommandError(f"{told} has no Redis to work with: {error}") from error
        if not alive:
            raise CommandError(f"{told} has not reported for {ALIVE_S} s")
        self.stdout.write(f"{told} lives")
