"""The ledger under /api/billing/: accounts, entries and what reconciliation found."""

import uuid
from datetime import datetime
from typing import Any, TypedDict

from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.ledger import selectors
from controlplane.billing.ledger.accounts import account_text
from controlplane.billing.ledger.hours import sealed_through
from controlplane.billing.ledger.models import JournalEntry, Reconciliation
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.kernel.ids import JournalEntryId, ReconciliationId, RequestId


class AccountJson(TypedDict):
    """What was ever moved on an account, in nano-USD; `balance` as its kind is read."""

    account: str
    debited_nano: int
    credited_nano: int
    balance_nano: int


class AccountsJson(TypedDict):
    """All accounts; lines booked before `sealed_through` can change no more."""

    sealed_through: datetime | None


class EntryJson(TypedDict):
    """A booking that is no request: `nano` from the credit account to the debit account."""

    id: JournalEntryId
    object: str
    kind: str
    debit: str
    credit: str
    nano: int
    reason: str
    reference: str
    reverses: RequestId | None
    actor: str
    approved_by: str
    booked_at: datetime


class ReconciliationJson(TypedDict):
    """One comparison; both figures are zero where requests, ledger, hours and roll-ups agree."""

    id: ReconciliationId
    begins: datetime
    ends: datetime
    made_at: datetime
    requests: int
    findings: int
    unaccounted_tokens: int
    unaccounted_nano: int
    examples: list[dict[str, Any]]


def account_json(one: selectors.Account) -> AccountJson:
    return answer_of(AccountJson, one, account=account_text(one.name))


def entry_json(entry: JournalEntry) -> EntryJson:
    return answer_of(
        EntryJson,
        entry,
        object="journal_entry",
        debit=account_text(entry.debit),
        credit=account_text(entry.credit),
        nano=entry.amount,
        actor=entry.actor_label,
    )


def reconciliation_json(one: Reconciliation) -> ReconciliationJson:
    return answer_of(ReconciliationJson, one)


class Accounts(MoneyView, at="accounts"):
    @operation(list_of=Whole(AccountJson, AccountsJson))
    def get(self, organization_id: uuid.UUID) -> Response:
        """List accounts, by name."""
        found = selectors.account_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, account_json, sealed_through=sealed_through())


class Entries(MoneyView, at="entries"):
    @operation(list_of=EntryJson)
    def get(self, organization_id: uuid.UUID) -> Response:
        """List journal entries, newest first."""
        found = selectors.entry_list(
            actor=self.actor(), organization=organization_id, ask=self.page_ask("entry")
        )
        return self.page(found, entry_json)


class Reconciliations(MoneyView, at="reconciliations"):
    @operation(list_of=Whole(ReconciliationJson))
    def get(self, organization_id: uuid.UUID) -> Response:
        """List reconciliations, newest first."""
        found = selectors.reconciliation_list(actor=self.actor(), organization=organization_id)
        return self.listed(found, reconciliation_json)
