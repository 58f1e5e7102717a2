"""The ledger under /api/billing/: accounts, entries, months and what reconciliation found."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, TypedDict

import msgspec
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.close_jobs import period_close_ask
from controlplane.billing.grants_json import WAITS, GrantJson, grant_json
from controlplane.billing.hours import sealed_through
from controlplane.billing.invoice_models import WalletGrant
from controlplane.billing.invoices_api import MoneyView
from controlplane.billing.ledger_selectors import (
    Month,
    account_list,
    entry_list,
    month_get,
    month_list,
    reconciliation_list,
)
from controlplane.billing.models import JournalEntry, Reconciliation
from controlplane.billing.models_closes import PeriodCloseJob
from controlplane.billing.periods import Period
from controlplane.billing.reversals import request_reverse
from controlplane.billing.tasks import period_close_enqueue
from controlplane.core.api_schema import operation
from controlplane.core.models import uuid7
from controlplane.core.permissions import Action
from controlplane.tenants.access import require

DONE, CREATED = 200, 201


class AccountJson(TypedDict):
    """What was ever moved on an account, in nano-USD; `balance` as its kind is read."""

    account: str
    debited_nano: int
    credited_nano: int
    balance_nano: int


class AccountsJson(TypedDict):
    """All accounts; lines booked before `sealed_through` can change no more."""

    data: list[AccountJson]
    sealed_through: str | None


class EntryJson(TypedDict):
    """A booking that is no request: `nano` from the credit account to the debit account."""

    id: str
    object: str
    kind: str
    debit: str
    credit: str
    nano: int
    reason: str
    reference: str
    reverses: str | None
    actor: str
    approved_by: str
    booked_at: str


class CloseJobJson(TypedDict):
    """A close by a worker: waiting, running, done or failed, and up to where it has read."""

    state: str
    reached_at: str | None
    asked_by: str
    error: str


class MonthJson(TypedDict):
    """A month and its state: open, closing (it is over) or closed, with its control totals."""

    period: str
    state: str
    closed_by: str | None
    closed_at: str | None
    transfers: int | None
    entries: int | None
    totals: dict[str, list[int]] | None
    digest: str | None
    job: CloseJobJson | None


class MonthsJson(TypedDict):
    """The last months, newest first."""

    data: list[MonthJson]


class ReconciliationJson(TypedDict):
    """One comparison; both figures are zero where requests, ledger, hours and roll-ups agree."""

    id: str
    begins: str
    ends: str
    made_at: str
    requests: int
    findings: int
    unaccounted_tokens: int
    unaccounted_nano: int
    examples: list[dict[str, Any]]


class ReconciliationsJson(TypedDict):
    """The latest, newest first."""

    data: list[ReconciliationJson]


class ReversalBody(msgspec.Struct, forbid_unknown_fields=True):
    """How much of a request's charge goes back, and why; `id` makes a repeat do nothing."""

    nano: int
    reason: str
    id: uuid.UUID | None = None


class Accounts(MoneyView):
    """`GET accounts`: the balances of the organization's books."""

    @operation(answer=AccountsJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """By name."""
        found = account_list(actor=self.actor(), organization=organization_id)
        body: AccountsJson = {
            "data": [
                {
                    "account": one.name,
                    "debited_nano": one.debited,
                    "credited_nano": one.credited,
                    "balance_nano": one.balance,
                }
                for one in found
            ],
            "sealed_through": _time(sealed_through()),
        }
        return Response(body)


class Entries(MoneyView):
    """`GET entries`: the journal."""

    @operation(list_of=EntryJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Newest first."""
        found = entry_list(actor=self.actor(), organization=organization_id, ask=self.page_ask())
        return self.page(found, entry_json)


class Reversals(MoneyView):
    """`POST requests/<id>/reversals`: part of a charge given back; for staff."""

    step_up_methods = frozenset({"POST"})

    @operation(
        body=ReversalBody,
        answer={CREATED: EntryJson, WAITS: GrantJson},
        example={"nano": 1_500_000, "reason": "the answer was cut"},
    )
    def post(self, request: Request, organization_id: uuid.UUID, charge_id: uuid.UUID) -> Response:
        """Never more than was charged; 202 with the grant where it takes a second person."""
        require(self.actor(), Action.CREDIT_GRANT)
        wanted = self.body(ReversalBody)
        made = request_reverse(
            actor=self.actor(),
            organization=organization_id,
            request=charge_id,
            nano=wanted.nano,
            reason=wanted.reason,
            form=wanted.id or uuid7(),
        )
        if isinstance(made, WalletGrant):
            return Response(grant_json(made), status=WAITS)
        return Response(entry_json(made), status=CREATED)


class Months(MoneyView):
    """`GET periods`: which months are closed."""

    @operation(answer=MonthsJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """The last thirteen."""
        found = month_list(actor=self.actor(), organization=organization_id)
        body: MonthsJson = {"data": [month_json(month) for month in found]}
        return Response(body)


class MonthClose(MoneyView):
    """`POST periods/<month>/close`: nothing is booked into it from then on."""

    step_up_methods = frozenset({"POST"})

    @operation(answer={DONE: MonthJson, WAITS: MonthJson})
    def post(self, request: Request, organization_id: uuid.UUID, period: str) -> Response:
        """202 where a worker closes a large one; 400 names why it cannot be closed yet."""
        actor = self.actor()
        require(actor, Action.PERIOD_CLOSE, organization_id)
        wanted = Period(period)
        made = period_close_ask(
            actor=actor,
            organization=organization_id,
            period=wanted,
            enqueue=period_close_enqueue,
        )
        status = WAITS if isinstance(made, PeriodCloseJob) else DONE
        month = month_get(actor=actor, organization=organization_id, period=wanted)
        return Response(month_json(month), status=status)


class Reconciliations(MoneyView):
    """`GET reconciliations`: requests, ledger, hours and roll-ups held together."""

    @operation(answer=ReconciliationsJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """The latest first."""
        found = reconciliation_list(actor=self.actor(), organization=organization_id)
        body: ReconciliationsJson = {"data": [reconciliation_json(one) for one in found]}
        return Response(body)


def entry_json(entry: JournalEntry) -> EntryJson:
    """An entry for programs."""
    return {
        "id": str(entry.id),
        "object": "journal_entry",
        "kind": entry.kind,
        "debit": entry.debit,
        "credit": entry.credit,
        "nano": entry.amount,
        "reason": entry.reason,
        "reference": entry.reference,
        "reverses": str(entry.reverses) if entry.reverses else None,
        "actor": entry.actor_label,
        "approved_by": entry.approved_by,
        "booked_at": entry.booked_at.isoformat(),
    }


def month_json(month: Month) -> MonthJson:
    """A month for programs."""
    close, job = month.close, month.job
    return {
        "period": month.period.name,
        "state": month.state.value,
        "closed_by": close.closed_by if close else None,
        "closed_at": _time(close.closed_at) if close else None,
        "transfers": close.transfers if close else None,
        "entries": close.entries if close else None,
        "totals": close.totals if close else None,
        "digest": month.digest or None,
        "job": {
            "state": job.state,
            "reached_at": _time(job.reached_at),
            "asked_by": job.asked_label,
            "error": job.error,
        }
        if job
        else None,
    }


def reconciliation_json(one: Reconciliation) -> ReconciliationJson:
    """A comparison for programs."""
    return {
        "id": str(one.id),
        "begins": one.begins.isoformat(),
        "ends": one.ends.isoformat(),
        "made_at": one.made_at.isoformat(),
        "requests": one.requests,
        "findings": one.findings,
        "unaccounted_tokens": one.unaccounted_tokens,
        "unaccounted_nano": one.unaccounted_nano,
        "examples": one.examples,
    }


def _time(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
