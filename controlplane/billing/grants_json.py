"""Grants as programs see them: what may wait for a second person."""

from __future__ import annotations

from typing import TypedDict

from controlplane.billing.invoice_models import WalletGrant

# Instead of 201: nothing is booked yet.
WAITS = 202


class GrantJson(TypedDict):
    """What a person asked for, and what became of it."""

    id: str
    object: str
    organization: str
    kind: str
    amount_nano: int
    subject: str | None
    about: str
    reason: str
    state: str
    asked_by: str
    decided_by: str | None
    created_at: str
    decided_at: str | None


def grant_json(grant: WalletGrant) -> GrantJson:
    """A grant for programs."""
    return {
        "id": str(grant.id),
        "object": "wallet_grant",
        "organization": str(grant.organization),
        "kind": grant.kind,
        "amount_nano": grant.amount_nano,
        "subject": str(grant.subject) if grant.subject else None,
        "about": grant.about,
        "reason": grant.reason,
        "state": grant.state,
        "asked_by": grant.asked_label,
        "decided_by": grant.decided_label or None,
        "created_at": grant.created_at.isoformat(),
        "decided_at": grant.decided_at.isoformat() if grant.decided_at else None,
    }
