"""`manage.py account_set`: close an account, or take away lost second factors. A door, no rules."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.core.audit import OPERATOR
from controlplane.tenants.accounts import user_find
from controlplane.tenants.factors import factors_reset
from controlplane.tenants.people import user_deactivate


class Command(BaseCommand):
    """Takes effect at once; gateways follow within two seconds."""

    help = "Close an account, or remove its second factors when they are lost."

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose account, and what to do."""
        parser.add_argument("email", metavar="EMAIL")
        parser.add_argument(
            "--close", action="store_true", help="end its sessions and let it sign in no more"
        )
        parser.add_argument(
            "--reset-factors", action="store_true", help="sign-in asks for the password alone"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what was asked for, and tell."""
        user = user_find(email=options["email"])
        if user is None:
            raise CommandError(f"EMAIL: there is no account {options['email']!r}.")
        if not (options["close"] or options["reset_factors"]):
            raise CommandError("Say --close or --reset-factors.")
        if options["reset_factors"]:
            count = factors_reset(actor=OPERATOR, user=user)
            self.stdout.write(f"{count} second factors removed.")
        if options["close"]:
            closed = user_deactivate(actor=OPERATOR, user=user)
            self.stdout.write("Account closed." if closed else "The account was closed before.")
