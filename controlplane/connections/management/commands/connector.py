"""`manage.py connector`: the node that calls hosted providers, while there is a connection."""

import signal
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import OperationalError, connections

from controlplane.connections.connector import ConnectorChild
from controlplane.connections.feed import connections_served, feed_line, feed_read
from controlplane.connections.services import POOL
from controlplane.core.audit.entries import Operator
from controlplane.embedded.demo import write_private
from controlplane.fleet.selectors import node_credential_active
from controlplane.fleet.services import node_credential_create

LOOK_SECONDS = 1.0
NAME_DEFAULT = "connector"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ConnectorOperator(Operator):
    """The connector itself, as the audit names it."""

    actor_label = "connector"


class Command(BaseCommand):
    """Follows the connections of the database for as long as it runs."""

    help = "Serve the models of hosted providers: starts and feeds the node that calls them."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--gateway", action="append", metavar="URL", default=[], help="repeatable"
        )
        parser.add_argument("--name", default=NAME_DEFAULT, help="the node's name")
        parser.add_argument(
            "--wanted", action="store_true", help="only say whether there is a connection to serve"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["wanted"]:
            self.stdout.write("yes" if connections_served() else "no")
            return
        self._name = options["name"]
        argv = [sys.executable, "-m", "inference", "--engine", "hosted", "--name", self._name]
        argv += ["--pool", POOL]
        for gateway in options["gateway"]:
            argv += ["--gateway", gateway]
        self._run(ConnectorChild(argv, self._env, self._say))

    def _run(self, child: ConnectorChild) -> None:
        stop = Event()

        def ask(kind: int, frame: FrameType | None) -> None:
            stop.set()

        before = {kind: signal.signal(kind, ask) for kind in STOP_SIGNALS}
        line: bytes | None = None
        try:
            while not stop.is_set():
                line = self._line(line)
                child.look(line)
                stop.wait(LOOK_SECONDS)
        finally:
            child.stop()
            for kind, handler in before.items():
                signal.signal(kind, handler)

    def _line(self, before: bytes | None) -> bytes | None:
        """What to feed; while the database is away, what it was."""
        try:
            feed = feed_read()
        except OperationalError:
            connections.close_all()
            return before
        return feed_line(feed) if feed.connections else None

    def _env(self) -> Mapping[str, str]:
        """The node's credential, kept beside those of other nodes; made where there is none."""
        file = Path(settings.DATA_DIR) / "secrets" / f"{self._name}-credential"
        if not (file.exists() and node_credential_active(node_name=self._name)):
            made = node_credential_create(actor=ConnectorOperator(), name=self._name, pool=POOL)
            write_private(file, made.secret + "\n")
        return {"SLUICE_NODE_CREDENTIAL": file.read_text().strip()}

    def _say(self, message: str) -> None:
        self.stdout.write(message)
        self.stdout.flush()
