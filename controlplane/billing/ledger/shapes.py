"""The books as programs see them: whole numbers of nano-USD."""

from __future__ import annotations

from typing import Any, TypedDict

from controlplane.billing.ledger.models import JournalEntry, Reconciliation


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


def entry_json(entry: JournalEntry) -> EntryJson:
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
