"""Giving a request's charge back, whole or in part; never more than was charged in all."""

import uuid

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db.models import Sum

from controlplane.billing.approvals import services
from controlplane.billing.approvals.models import GrantKind, WalletGrant
from controlplane.billing.ledger.journal import AMOUNT_NANO_MAX, journal_book
from controlplane.billing.ledger.models import POSTING_KINDS, EntryKind, JournalEntry, Transfer
from controlplane.billing.reversals.remaining import reversal_room_nano
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, organization_scope
from controlplane.tenants.access import require


def request_reverse(
    *,
    actor: Actor,
    organization: uuid.UUID,
    request: uuid.UUID,
    nano: int,
    reason: str,
    form: uuid.UUID,
) -> JournalEntry | WalletGrant:
    """Book a request's charge back to who paid it, and make room in the budgets it was spent from.

    For who may grant credit; above the limit of one person the grant that waits for a second one.
    `form` is the grant's id: sent twice, it is given once. Raises ObjectDoesNotExist where nothing
    was charged, ValidationError on `nano` where less is left to give back, also because its invoice
    was credited.
    """
    require(actor, Action.CREDIT_GRANT)
    reason = services.reason_clean(reason)
    if not 1 <= nano <= AMOUNT_NANO_MAX:
        raise ValidationError({"nano": f"Must be 1 to {AMOUNT_NANO_MAX} nano-USD."})
    wish = WalletGrant(
        id=form,
        organization=organization,
        kind=GrantKind.REVERSAL,
        amount_nano=nano,
        reason=reason,
        subject=request,
        about=f"request {request}",
    )
    with organization_scope([organization]):
        charge = _charge(organization, request)
        services.one_at_a_time(organization)
        if not WalletGrant.objects.filter(id=form).exists():
            _require_left(charge, nano)
        found = services.grant_ask(actor=actor, wish=wish, book=reversal_book)
        if isinstance(found, JournalEntry):
            return found
        # Sent again, it may be booked already.
        key = {"organization": organization, "idempotency": _key(found)}
        return JournalEntry.objects.filter(**key).first() or found


def reversal_book(grant: WalletGrant) -> JournalEntry:
    """Book the reversal that was wished for; inside the organization's scope."""
    request = services.subject_of(grant)
    charge = _charge(grant.organization, request)
    _require_left(charge, grant.amount_nano)
    return journal_book(
        organization=grant.organization,
        kind=EntryKind.REVERSAL,
        debit=charge.credit,
        credit=charge.debit,
        nano=grant.amount_nano,
        reason=grant.reason,
        reverses=request,
        idempotency=_key(grant),
        actor=services.asker_of(grant),
        approved_by=grant.decided_label or None,
    )


def _require_left(charge: Transfer, nano: int) -> None:
    """Raises ValidationError on `nano` where less is left of the charge, or of usage like it."""
    lines = Transfer.objects.filter(
        request=charge.request, organization=charge.organization, kind__in=POSTING_KINDS
    )
    charged = lines.aggregate(nano=Sum("amount"))["nano"] or 0
    entries = JournalEntry.objects.filter(reverses=charge.request, organization=charge.organization)
    given = entries.aggregate(nano=Sum("amount"))["nano"] or 0
    if nano > charged - given:
        told = f"{charged - given} of {charged} nano-USD remain to be reversed."
        raise ValidationError({"nano": told})
    room = reversal_room_nano(charge)
    if room is not None and nano > room:
        told = f"Its invoice was credited: {room} nano-USD of this usage remain to be credited."
        raise ValidationError({"nano": told})


def _charge(organization: uuid.UUID, request: uuid.UUID) -> Transfer:
    lines = Transfer.objects.filter(request=request, organization=organization)
    charge = lines.filter(kind__in=POSTING_KINDS).first()
    if charge is None:
        raise ObjectDoesNotExist("request")
    return charge


def _key(grant: WalletGrant) -> str:
    return f"reversal:{grant.id}"
