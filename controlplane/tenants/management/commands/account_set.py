"""`manage.py account_set`: close an account, or take away lost second factors. A door, no rules."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlplane.core.audit.entries import OPERATOR
from controlplane.tenants.people.services import user_deactivate
from controlplane.tenants.sign_in.accounts import user_find
from controlplane.tenants.sign_in.factors import factors_reset


class Command(BaseCommand):
    """Takes effect at once; gateways follow within two seconds."""

    help = "Close an account, or remove its lost second factors."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL")
        parser.add_argument(
            "--close", action="store_true", help="end its sessions and block sign-in"
        )
        parser.add_argument(
            "--reset-factors",
            action="store_true",
            help="remove its second factors; sign-in asks for the password only",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        user = user_find(email=options["email"])
        if user is None:
            raise CommandError(f"EMAIL: account {options['email']!r} not found.")
        if not (options["close"] or options["reset_factors"]):
            raise CommandError("Use --close or --reset-factors.")
        if options["reset_factors"]:
            count = factors_reset(actor=OPERATOR, user=user)
            self.stdout.write(f"{count} second factors removed.")
        if options["close"]:
            closed = user_deactivate(actor=OPERATOR, user=user)
            self.stdout.write("Account closed." if closed else "The account was already closed.")
