"""The second person's word on what someone wants to give: approved, it is booked."""

from collections.abc import Callable

from django.utils import timezone

from controlplane.billing.approvals.models import GrantKind, GrantState, WalletGrant
from controlplane.billing.approvals.services import grant_audit, one_at_a_time
from controlplane.billing.payments.services import payment_book
from controlplane.billing.reversals.credit_notes import credit_note_book
from controlplane.billing.reversals.requests import reversal_book
from controlplane.billing.wallets.services import wallet_book
from controlplane.core.api.refusals import refuse_kept
from controlplane.core.audit.entries import Actor
from controlplane.core.errors.body import Conflict
from controlplane.core.permissions import Action, organization_scope
from controlplane.tenants.access import require

NOT_ALONE = "The person who requested this cannot approve it."
# Whoever holds the operator's token may have an account, too: it is no one's word.
NO_USER = "Only a user can approve this, not the operator token."
BOOKS: dict[str, Callable[[WalletGrant], object]] = {
    GrantKind.TOPUP: wallet_book,
    GrantKind.CREDIT: wallet_book,
    GrantKind.CREDIT_NOTE: credit_note_book,
    GrantKind.REVERSAL: reversal_book,
    GrantKind.PAYMENT: payment_book,
}


def grant_approve(*, actor: Actor, grant: WalletGrant) -> WalletGrant:
    """Give what someone else asked for; raises PermissionDenied to who asked, and to no user.

    Raises ValidationError where it can be booked no more, such as usage that was given back since.
    """
    require(actor, Action.CREDIT_GRANT)
    if actor.actor_id is None or actor.actor_id == grant.asked_by:

        def told() -> None:
            with organization_scope([grant.organization]):
                grant_audit(actor, grant, "grant_approve_refused")

        refuse_kept(NO_USER if actor.actor_id is None else NOT_ALONE, told)
    with organization_scope([grant.organization]):
        one_at_a_time(grant.organization)
        made = _decide(actor, grant, GrantState.BOOKED)
        grant_audit(actor, made, "grant_approve")
        BOOKS[made.kind](made)
    return made


def grant_refuse(*, actor: Actor, grant: WalletGrant) -> WalletGrant:
    """Give nothing; whoever asked may take it back this way, too."""
    require(actor, Action.CREDIT_GRANT)
    with organization_scope([grant.organization]):
        made = _decide(actor, grant, GrantState.REFUSED)
        grant_audit(actor, made, "grant_refuse")
    return made


DECISIONS: dict[str, Callable[..., WalletGrant]] = {
    "approve": grant_approve,
    "refuse": grant_refuse,
}


def _decide(actor: Actor, grant: WalletGrant, state: GrantState) -> WalletGrant:
    """The row as decided; the condition picks one of two who decide at once."""
    decided = WalletGrant.objects.filter(id=grant.id, state=GrantState.PENDING).update(
        state=state,
        decided_by=actor.actor_id,
        decided_label=actor.actor_label,
        decided_at=timezone.now(),
    )
    if not decided:
        raise Conflict({"grant": "This request was already approved or refused."})
    return WalletGrant.objects.get(id=grant.id)
