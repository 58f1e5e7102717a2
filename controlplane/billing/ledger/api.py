"""The ledger under /api/billing/: accounts, entries and what reconciliation found."""

import uuid

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.ledger.hours import sealed_through
from controlplane.billing.ledger.selectors import account_list, entry_list, reconciliation_list
from controlplane.billing.ledger.shapes import (
    AccountJson,
    AccountsJson,
    EntryJson,
    ReconciliationJson,
    account_json,
    entry_json,
    reconciliation_json,
)
from controlplane.core.api.schema import Whole, operation


class Accounts(MoneyView):
    """`GET accounts`: the balances of the organization's books."""

    @operation(list_of=Whole(AccountJson, AccountsJson))
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """List accounts, by name."""
        found = account_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, account_json, sealed_through=sealed_through())


class Entries(MoneyView):
    """`GET entries`: the journal."""

    @operation(list_of=EntryJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """List journal entries, newest first."""
        found = entry_list(
            actor=self.actor(), organization=organization_id, ask=self.page_ask("entry")
        )
        return self.page(found, entry_json)


class Reconciliations(MoneyView):
    """`GET reconciliations`: requests, ledger, hours and roll-ups held together."""

    @operation(list_of=Whole(ReconciliationJson))
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """List reconciliations, newest first."""
        found = reconciliation_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, reconciliation_json)
