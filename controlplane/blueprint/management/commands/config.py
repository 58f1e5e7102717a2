"""`manage.py sluice config`: configuration as code, as the operator."""

import signal
import sys
import threading
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.blueprint import configuration
from controlplane.blueprint.providers import key_read
from controlplane.blueprint.ready import READY, ready_names
from controlplane.blueprint.watching import WatchedFolder
from controlplane.core.audit.entries import OPERATOR

STDIN = "-"
INTERVAL_S_DEFAULT, INTERVAL_S_MAX = 10, 3_600


class Command(BaseCommand):
    """Exports, checks, compares, applies and watches configuration documents."""

    help = "Export, validate, diff or apply a configuration document (YAML), or watch a folder."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        export = commands.add_parser("export", help="write the current configuration")
        export.add_argument(
            "--organization", action="append", help="names to include (default: all)"
        )
        ready = commands.add_parser("ready", help="list example documents, or write one")
        ready.add_argument("name", nargs="?", help="which one")
        for name, told in (
            ("validate", "check that a document can be applied"),
            ("diff", "show what applying it would change"),
            ("apply", "apply it, in one transaction"),
        ):
            command = commands.add_parser(name, help=told)
            command.add_argument("file", help=f"the document; {STDIN} reads standard input")
        command.add_argument(
            "--yes", action="store_true", help="apply the changes; default: dry run"
        )
        watch = commands.add_parser("watch", help="apply a folder's documents when they change")
        watch.add_argument("folder", type=Path, help="where the documents (*.yaml) are")
        watch.add_argument(
            "--interval", type=_interval, default=INTERVAL_S_DEFAULT, metavar="SECONDS",
            help=f"how often the folder is read; default: {INTERVAL_S_DEFAULT}",
        )  # fmt: skip

    def handle(self, *args: Any, **options: Any) -> None:
        command = options["command"]
        try:
            if command == "export":
                text = configuration.configuration_export(
                    actor=OPERATOR, names=options["organization"]
                )
                self.stdout.write(text, ending="")
            elif command == "ready":
                self._ready(options["name"])
            elif command == "validate":
                text = _read(options["file"])
                configuration.configuration_apply(actor=OPERATOR, text=text, keys=key_read)
                self.stdout.write("This document can be applied.")
            elif command == "watch":
                self._watch(options["folder"], options["interval"])
            else:
                self._apply(_read(options["file"]), really=bool(options.get("yes")))
        except ValidationError as error:
            told = [f"{path}: {' '.join(each)}" for path, each in error.message_dict.items()]
            raise CommandError("\n".join(told)) from error

    def _apply(self, text: str, *, really: bool) -> None:
        changes = configuration.configuration_apply(
            actor=OPERATOR, text=text, dry_run=not really, keys=key_read
        )
        for change in changes:
            self.stdout.write(shown(change))
        count = len(changes)
        done = "changed" if really else "would change; nothing was applied"
        self.stdout.write(f"{count} value{'' if count == 1 else 's'} {done}.")

    def _watch(self, folder: Path, interval_s: int) -> None:
        """Until SIGTERM or SIGINT, and never in the middle of a look."""
        if not folder.is_dir():
            raise CommandError(f"{folder} is not a folder.")
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        self._say(f"Watching {folder.absolute()}, every {interval_s} s")
        watched = WatchedFolder(folder.absolute(), self._say)
        while not ended.is_set():
            watched.look()
            ended.wait(interval_s)

    def _say(self, message: str) -> None:
        self.stdout.write(message)
        self.stdout.flush()

    def _ready(self, name: str | None) -> None:
        names = ready_names()
        if name is None:
            self.stdout.write("\n".join(names))
        elif name not in names:
            raise CommandError(f"No document {name!r}; choose from {', '.join(names)}.")
        else:
            self.stdout.write((READY / f"{name}.yaml").read_text(encoding="utf-8"), ending="")


def shown(change: configuration.ValueChange) -> str:
    before, after = (msgspec.json.encode(value).decode() for value in change[1:])
    return f"{change.path}: {before} -> {after}"


def _interval(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= INTERVAL_S_MAX:
        raise ArgumentTypeError(f"must be 1 to {INTERVAL_S_MAX} seconds, not {text!r}")
    return int(text)


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
