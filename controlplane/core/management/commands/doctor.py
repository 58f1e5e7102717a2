"""`sluice doctor`: whether this machine can run Sluice, and what to do where it cannot."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.embedded.doctor import findings
from controlplane.embedded.ports import PORT_DEFAULT


class Command(BaseCommand):
    """Starts and changes nothing."""

    help = "Check Python, disk, port, PostgreSQL, Redis and the modes of secrets."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
        parser.add_argument("--port", type=int, default=PORT_DEFAULT, help="port to listen on")

    def handle(self, *args: Any, **options: Any) -> None:
        found = findings(options["host"], options["port"])
        for each in found:
            mark = "problem" if each.fix else "ok"
            self.stdout.write(f"{mark:<8} {each.subject}: {each.told}")
            if each.fix:
                self.stdout.write(f"{'':<9}{each.fix}")
        problems = sum(bool(each.fix) for each in found)
        if problems:
            raise CommandError(f"{problems} to mend.")
