"""`manage.py organization_create`: a tenant with a project and a budget. No rules of its own."""

from argparse import ArgumentTypeError
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from controlplane.billing.models import UNLIMITED_NANO, BudgetScope
from controlplane.billing.services import budget_set
from controlplane.blueprint.demo import BUDGET_USD, PROJECT_NAME
from controlplane.core.arguments import arguments_named
from controlplane.core.audit import OPERATOR
from controlplane.kernel.money import NANO_PER_USD
from controlplane.tenants.accounts import user_create, user_find
from controlplane.tenants.selectors import organizations_named
from controlplane.tenants.services import organization_create, project_create


class Command(BaseCommand):
    """All of it or nothing."""

    help = "Make an organization with its owner, a first project and a budget."

    def add_arguments(self, parser: CommandParser) -> None:
        """Its name, its owner and what it may spend."""
        parser.add_argument("name", metavar="NAME")
        parser.add_argument(
            "--owner", required=True, metavar="EMAIL", help="the account is made where missing"
        )
        parser.add_argument(
            "--budget-usd",
            type=_nano,
            default=BUDGET_USD * NANO_PER_USD,
            metavar="N",
            help=f"what it may spend in all, in USD (default: {BUDGET_USD})",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Make it in one transaction."""
        email = options["owner"]
        if organizations_named(name=options["name"].strip()):
            raise CommandError(f"NAME: there is an organization {options['name']!r}.")
        with transaction.atomic():
            with arguments_named(email="--owner"):
                owner = user_find(email=email) or user_create(actor=OPERATOR, email=email)
            with arguments_named(name="NAME"):
                made = organization_create(actor=OPERATOR, name=options["name"], owner=owner)
            project_create(actor=OPERATOR, organization=made, name=PROJECT_NAME)
            scope, limit_nano = BudgetScope.ORGANIZATION, options["budget_usd"]
            budget_set(made.id, made.id, scope=scope, limit_nano=limit_nano)
        self.stdout.write(f"Made {made.name} with the project {PROJECT_NAME!r}.")
        if not owner.has_usable_password():
            self.stdout.write(f"{owner.email} has no password yet: manage.py setup_link.")


def _nano(text: str) -> int:
    try:
        nano = Decimal(text) * NANO_PER_USD
    except InvalidOperation:
        raise ArgumentTypeError(f"must be an amount in USD, not {text!r}") from None
    if not nano.is_finite() or not 0 <= nano <= UNLIMITED_NANO or nano != int(nano):
        raise ArgumentTypeError(f"must be 0 to {UNLIMITED_NANO // NANO_PER_USD} USD, not {text!r}")
    return int(nano)
