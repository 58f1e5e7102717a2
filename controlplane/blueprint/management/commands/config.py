"""`manage.py sluice config`: configuration as code, as the operator."""

import sys
from pathlib import Path
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.blueprint import configuration
from controlplane.blueprint.ready import READY, ready_names
from controlplane.core.audit.entries import OPERATOR

STDIN = "-"


class Command(BaseCommand):
    """Exports, checks, compares and applies configuration documents."""

    help = "Export, validate, diff or apply a configuration document (YAML)."

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
                configuration.configuration_validate(actor=OPERATOR, text=_read(options["file"]))
                self.stdout.write("This document can be applied.")
            else:
                self._apply(_read(options["file"]), really=bool(options.get("yes")))
        except ValidationError as error:
            told = [f"{path}: {' '.join(each)}" for path, each in error.message_dict.items()]
            raise CommandError("\n".join(told)) from error

    def _apply(self, text: str, *, really: bool) -> None:
        changes = configuration.configuration_apply(actor=OPERATOR, text=text, dry_run=not really)
        for change in changes:
            self.stdout.write(shown(change))
        count = len(changes)
        done = "changed" if really else "would change; nothing was applied"
        self.stdout.write(f"{count} value{'' if count == 1 else 's'} {done}.")

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


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} cannot be read: {error}") from error
