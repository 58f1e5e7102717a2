"""Top-ups and credits that people give, with a reason.

The wallet itself is a budget row that the journal moves; here is who may move it.
"""

import uuid
from dataclasses import dataclass

from django.core.exceptions import ObjectDoesNotExist, ValidationError

from controlplane.billing.approvals.models import WALLET_KINDS, GrantKind, WalletGrant
from controlplane.billing.approvals.services import asker_of, grant_ask, reason_clean
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.journal import journal_book
from controlplane.billing.ledger.models import EntryKind
from controlplane.billing.wallets.selectors import has_wallet
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, organization_scope
from controlplane.kernel.money import NANO_PER_USD
from controlplane.tenants.access import require
from controlplane.tenants.selectors import organization_names

FIRST_TOP_UP = (
    "The first top-up makes this organization prepaid: requests are then paid from its wallet and "
    "refused when it is empty. This cannot be undone. Confirm to continue."
)
GRANT_NANO_MAX = 1_000_000_000 * NANO_PER_USD


@dataclass(frozen=True, kw_only=True)
class Gift:
    """What goes into a wallet: money that arrived (`topup`) or is given away (`credit`)."""

    kind: GrantKind
    amount_nano: int
    reason: str


def wallet_grant(
    *,
    actor: Actor,
    organization_id: uuid.UUID,
    gift: Gift,
    form: uuid.UUID,
    becomes_prepaid: bool = False,
) -> WalletGrant:
    """Put money or credit into a wallet, or ask for it where that takes a second person.

    The first top-up makes the organization prepaid, which `becomes_prepaid` confirms. `form` is
    the grant's id: sent twice, it is given once. Raises ValidationError that names the field,
    Conflict where the id stands for another.
    """
    require(actor, Action.CREDIT_GRANT)
    if gift.kind not in WALLET_KINDS:
        raise ValidationError({"kind": f"Must be one of {', '.join(WALLET_KINDS)}."})
    if not 1 <= gift.amount_nano <= GRANT_NANO_MAX:
        told = f"Must be above 0 and at most {GRANT_NANO_MAX // NANO_PER_USD:,} USD."
        raise ValidationError({"amount": told})
    reason = reason_clean(gift.reason)
    if not organization_names(actor=actor, ids=[organization_id]):
        raise ObjectDoesNotExist("organization")
    wish = WalletGrant(
        id=form,
        organization=organization_id,
        kind=gift.kind,
        amount_nano=gift.amount_nano,
        reason=reason,
    )
    with organization_scope([organization_id]):
        if gift.kind == GrantKind.TOPUP:
            require_confirmed(organization_id, becomes_prepaid)
        return grant_ask(actor=actor, wish=wish, book=wallet_book)


def require_confirmed(organization_id: uuid.UUID, becomes_prepaid: bool) -> None:
    """Raises ValidationError where a top-up is the first and no one said that they know.

    Inside the organization's scope.
    """
    if not becomes_prepaid and not has_wallet(organization_id):
        raise ValidationError({"becomes_prepaid": FIRST_TOP_UP})


def wallet_book(grant: WalletGrant) -> WalletGrant:
    """Move the wallet, or what is owed; inside the organization's scope."""
    organization = grant.organization
    topup = grant.kind == GrantKind.TOPUP
    prepaid = topup or has_wallet(organization)
    journal_book(
        organization=organization,
        kind=EntryKind.TOPUP if topup else EntryKind.CREDIT,
        debit=accounts.cash("bank") if topup else accounts.promo(organization),
        credit=accounts.wallet(organization) if prepaid else accounts.receivable(organization),
        nano=grant.amount_nano,
        reason=grant.reason,
        reference=f"grant {grant.id}",
        idempotency=f"grant:{grant.id}",
        actor=asker_of(grant),
        approved_by=grant.decided_label or None,
    )
    return grant
