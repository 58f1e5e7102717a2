"""`sluice models list`, `orgs list` and `wallet list`. Reads alone."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from controlplane.catalog.selectors import model_list
from controlplane.composed.api_catalogue import entry_json
from controlplane.composed.organizations.api import organization_json
from controlplane.composed.organizations.selectors import organization_rows
from controlplane.core.answers import LIMIT_MAX, PageAsk
from controlplane.core.arguments import rows_told
from controlplane.core.audit.entries import OPERATOR

COLUMNS = {
    "models": ("name", "task", "pool", "context_window", "output_tokens_max", "enabled"),
    "orgs": ("id", "name", "state", "members_count", "spent_nano", "budget_left_nano"),
    "wallets": ("id", "name", "balance_nano", "state"),
}


class Command(BaseCommand):
    """As a table, or as the API answers."""

    help = f"List models, organizations or wallets; of organizations the newest {LIMIT_MAX}."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=[*COLUMNS])
        parser.add_argument("--json", action="store_true", help="as the API answers")

    def handle(self, *args: Any, **options: Any) -> None:
        what = options["what"]
        rows = [entry_json(model) for model in model_list()] if what == "models" else _tenants(what)
        self.stdout.write(rows_told(rows, COLUMNS[what], as_json=options["json"]), ending="")


def _tenants(what: str) -> Iterable[Mapping[str, Any]]:
    ask = PageAsk(limit=LIMIT_MAX)
    found = organization_rows(actor=OPERATOR, now=timezone.now(), ask=ask).rows
    return [
        organization_json(row) for row in found if what == "orgs" or row.balance_nano is not None
    ]
