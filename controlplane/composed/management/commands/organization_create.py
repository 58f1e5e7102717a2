"""`manage.py organization_create`: a tenant with a project and a budget. No rules of its own."""

from argparse import ArgumentTypeError
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from controlplane.billing.budgets.models import UNLIMITED_NANO
from controlplane.composed.organizations import services
from controlplane.core.arguments import arguments_named
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.money import NANO_PER_USD
from controlplane.tenants.sign_in.accounts import SETUP_PATH


class Command(BaseCommand):
    """All of it or nothing."""

    help = "Create an organization with its owner, a first project and a budget."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        parser.add_argument(
            "--owner", required=True, metavar="EMAIL", help="the account is created if missing"
        )
        parser.add_argument(
            "--budget-usd",
            type=_nano,
            default=services.FIRST_BUDGET_NANO,
            metavar="N",
            help=f"total budget in USD (default: {services.FIRST_BUDGET_NANO // NANO_PER_USD})",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with arguments_named(name="NAME", owner="--owner"):
            made = services.organization_open(
                actor=OPERATOR,
                name=options["name"],
                owner=options["owner"],
                budget_nano=options["budget_usd"],
            )
        name = made.organization.name
        self.stdout.write(f"Created {name} with the project {services.FIRST_PROJECT!r}.")
        if made.token is not None:
            self.stdout.write(f"{made.owner.email} sets a password at {SETUP_PATH}{made.token}")


def _nano(text: str) -> int:
    try:
        nano = Decimal(text) * NANO_PER_USD
    except InvalidOperation:
        raise ArgumentTypeError(f"must be an amount in USD, not {text!r}") from None
    if not nano.is_finite() or not 0 <= nano <= UNLIMITED_NANO or nano != int(nano):
        raise ArgumentTypeError(f"must be 0 to {UNLIMITED_NANO // NANO_PER_USD} USD, not {text!r}")
    return int(nano)
