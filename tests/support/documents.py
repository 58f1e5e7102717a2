"""A document and a grant for tests that only need one to be there."""

from __future__ import annotations

import uuid
from typing import TypeVar

from controlplane.billing.approvals.models import GrantKind, WalletGrant
from controlplane.billing.documents.lines import Line, LineKind
from controlplane.billing.documents.models import BillingProfile, DocumentKind, Invoice
from controlplane.billing.documents.services import document_keep, document_make
from controlplane.billing.wallets.services import Gift, wallet_grant
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.models import uuid7
from controlplane.core.permissions import organization_scope
from controlplane.tenants.sign_in.accounts import user_create

Made = TypeVar("Made")
USD_NANO = 1_000_000_000
USD_PICO = 1_000_000_000_000


def make_invoice(organization_id: uuid.UUID, period: str = "2025-01") -> Invoice:
    """An invoice over 12 dollars that no ledger knows of."""
    line = Line(
        position=1,
        kind=LineKind.USAGE,
        project=organization_id.hex,
        project_name="web",
        model="tiny",
        token_type="output",
        quantity=12_000_000,
        unit_pico=1_000_000,
        amount_pico=12 * USD_PICO,
        account="revenue:tiny",
    )
    made = document_make(
        organization_id=organization_id,
        kind=DocumentKind.INVOICE,
        period=period,
        lines=[line],
        profile=BillingProfile(organization=organization_id),
        name="Acme",
    )
    with organization_scope([organization_id]):
        document_keep(OPERATOR, made)
    return made


def booked(found: Made | WalletGrant) -> Made:
    """What one person was able to book alone."""
    assert not isinstance(found, WalletGrant)
    return found


def make_pending_grant(organization_id: uuid.UUID) -> WalletGrant:
    """A top-up so large that it waits for somebody else than Steve, who asked for it."""
    steve = user_create(actor=OPERATOR, email="steve@example.org", is_staff=True)
    return wallet_grant(
        actor=steve,
        organization_id=organization_id,
        gift=Gift(kind=GrantKind.TOPUP, amount_nano=1_000_000 * USD_NANO, reason="a large one"),
        form=uuid7(),
        becomes_prepaid=True,
    )
