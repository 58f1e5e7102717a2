"""`sluice secrets …`: the installation's secrets, replaced while it serves. Doors, no rules."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.composed.secrets.rotation import (
    NAMES,
    TURNING,
    SecretError,
    secret_rotate,
    secret_settle,
    webhooks_told,
)


class Command(BaseCommand):
    """Prints no secret but those of webhooks, which belong to their receivers."""

    help = "Replace a secret of this installation, with an overlap, while it serves."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True)
        rotate = commands.add_parser("rotate", help="make a new value; the old one still counts")
        rotate.add_argument("name", choices=NAMES)
        commands.add_parser("webhooks", help="print what webhooks are signed with, for receivers")
        settle = commands.add_parser("settle", help="forget earlier values")
        settle.add_argument("name", choices=tuple(TURNING))
        settle.add_argument("--yes", action="store_true", help="also end keys of an earlier pepper")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["command"] == "rotate":
                told = secret_rotate(options["name"])
            elif options["command"] == "webhooks":
                told = webhooks_told()
            else:
                told = secret_settle(options["name"], despite_keys=options["yes"])
        except SecretError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(told)
