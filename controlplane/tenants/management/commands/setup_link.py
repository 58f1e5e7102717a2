"""`manage.py setup_link`: a one-time link to set a password. A door to the service, no rules."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from controlplane.core.arguments import arguments_named
from controlplane.core.audit.entries import OPERATOR
from controlplane.tenants.sign_in import accounts


class Command(BaseCommand):
    """Prints the link's path on standard output, and nothing else there."""

    help = "Create a one-time link to set the password of an account; earlier links expire."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL")
        parser.add_argument(
            "--create", action="store_true", help="create the account if missing, as staff"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        email = options["email"]
        with transaction.atomic():
            if options["create"]:
                with arguments_named(email="EMAIL"):
                    user = accounts.user_create(actor=OPERATOR, email=email, is_staff=True)
            elif (found := accounts.user_find(email=email)) is not None:
                user = found
            else:
                raise CommandError(
                    f"EMAIL: account {email!r} not found; use --create to create it."
                )
            token = accounts.setup_link_create(actor=OPERATOR, user=user)
        if not options["create"]:
            accounts.setup_link_tell(actor=OPERATOR, user=user)
        self.stdout.write(f"{accounts.SETUP_PATH}{token}")
        self.stderr.write("Open this path on the dashboard. It works once and expires in one day.")
