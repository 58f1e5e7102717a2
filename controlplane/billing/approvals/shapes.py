"""Grants as programs see them: what may wait for a second person."""

from datetime import datetime
from typing import TypedDict

from controlplane.billing.approvals.models import GrantKind, WalletGrant
from controlplane.core.answers import answer_of
from controlplane.kernel.ids import AnyId, OrganizationId, WalletGrantId, public_id

# Instead of 201: nothing is booked yet.
WAITS = 202


class GrantJson(TypedDict):
    """What a person asked for, and what became of it."""

    id: WalletGrantId
    object: str
    organization: OrganizationId
    kind: str
    amount_nano: int
    subject: AnyId | None
    about: str
    reason: str
    state: str
    asked_by: str
    decided_by: str | None
    created_at: datetime
    decided_at: datetime | None


def grant_json(grant: WalletGrant) -> GrantJson:
    return answer_of(
        GrantJson,
        grant,
        object="wallet_grant",
        subject=grant.subject
        and public_id("req" if grant.kind == GrantKind.REVERSAL else "inv", grant.subject),
        asked_by=grant.asked_label,
        decided_by=grant.decided_label or None,
    )
