"""Giving a request's charge back, whole or in part; never more than was charged in all."""

from __future__ import annotations

import uuid

from django.core.exceptions import ObjectDoesNotExist, ValidationError

from controlplane.billing.journal import journal_book
from controlplane.billing.models import POSTING_KINDS, EntryKind, JournalEntry, Transfer
from controlplane.billing.returns import reversal_room_nano
from controlplane.core.audit import Actor
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import require


def request_reverse(
    *,
    actor: Actor,
    organization: uuid.UUID,
    request: uuid.UUID,
    nano: int,
    reason: str,
    idempotency: str,
) -> JournalEntry:
    """Book a request's charge back to who paid it, and make room in the budgets it was spent from.

    For who may grant credit. Raises ObjectDoesNotExist where nothing was charged, ValidationError
    on `nano` where less is left to give back, also because its invoice was credited.
    """
    require(actor, Action.CREDIT_GRANT)
    with organization_scope([organization]):
        lines = Transfer.objects.filter(request=request, organization=organization)
        charge = lines.filter(kind__in=POSTING_KINDS).first()
        if charge is None:
            raise ObjectDoesNotExist("request")
        room = reversal_room_nano(charge)
        again = JournalEntry.objects.filter(organization=organization, idempotency=idempotency)
        if room is not None and nano > room and not again.exists():
            told = f"Its invoice was credited: {room} nano-USD of such usage are left to give back."
            raise ValidationError({"nano": told})
        return journal_book(
            organization=organization,
            kind=EntryKind.REVERSAL,
            debit=charge.credit,
            credit=charge.debit,
            nano=nano,
            reason=reason,
            reverses=request,
            idempotency=idempotency,
            actor=actor,
        )
