"""`manage.py setup_link`: a one-time link to set a password. A door to the service, no rules."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from controlplane.core.arguments import arguments_named
from controlplane.core.audit import OPERATOR
from controlplane.tenants.accounts import (
    SETUP_PATH,
    setup_link_create,
    setup_link_tell,
    user_create,
    user_find,
)


class Command(BaseCommand):
    """Prints the link's path on standard output, and nothing else there."""

    help = "Make a one-time link that sets the password of an account; earlier links end."

    def add_arguments(self, parser: CommandParser) -> None:
        """Whose link."""
        parser.add_argument("email", metavar="EMAIL")
        parser.add_argument(
            "--create", action="store_true", help="make the account first, as one of the staff"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Find or make the account, then its link."""
        email = options["email"]
        with transaction.atomic():
            if options["create"]:
                with arguments_named(email="EMAIL"):
                    user = user_create(actor=OPERATOR, email=email, is_staff=True)
            elif (found := user_find(email=email)) is not None:
                user = found
            else:
                raise CommandError(f"EMAIL: there is no account {email!r}; --create makes one.")
            token = setup_link_create(actor=OPERATOR, user=user)
        if not options["create"]:
            setup_link_tell(actor=OPERATOR, user=user)
        self.stdout.write(f"{SETUP_PATH}{token}")
        self.stderr.write("Open this path at the address of the pages: once, and within a day.")
