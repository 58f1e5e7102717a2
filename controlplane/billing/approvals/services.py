"""What people give: booked at once, or above a limit once a second person agrees.

Top-ups, credits, credit notes, reversals and bank payments entered by hand all begin here; what
books each of them, once it may be, is named in `decisions`. This lock of an organization comes
before a month's (`reversals`), and both before those of the ledger's functions.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Sum
from django.utils import timezone

from controlplane.billing.approvals.models import (
    REASON_CHARS_MAX,
    GrantState,
    WalletGrant,
)
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.errors.body import Conflict
from controlplane.core.queries import rows
from controlplane.kernel.money import NANO_PER_USD

# Within this time what one person gives alone is added up, so that it cannot be given in parts.
ALONE_WITHIN = timedelta(days=1)
OTHER_FORM = {"form": "This form was already submitted with different values."}
Made = TypeVar("Made")


@dataclass(frozen=True)
class Asker:
    """Who asked for a grant, in whose name it is booked, whoever approved it."""

    actor_id: uuid.UUID | None
    actor_label: str


def asker_of(grant: WalletGrant) -> Asker:
    return Asker(grant.asked_by, grant.asked_label)


def subject_of(grant: WalletGrant) -> uuid.UUID:
    """The invoice or request that it is about; raises ObjectDoesNotExist where there is none."""
    if grant.subject is None:
        raise ObjectDoesNotExist("subject")
    return grant.subject


def grant_ask(
    *, actor: Actor, wish: WalletGrant, book: Callable[[WalletGrant], Made]
) -> Made | WalletGrant:
    """Book it if this person may give so much alone; else the grant that waits for a second one.

    `wish` is unsaved, its id that of the form: sent twice, it is given once, and sent again it is
    the grant of before. Inside the organization's scope, for who may. Raises Conflict where the
    form stands for another.
    """
    wish.asked_by, wish.asked_label = actor.actor_id, actor.actor_label
    one_at_a_time(wish.organization)
    if not _is_new(wish):
        return WalletGrant.objects.get(id=wish.id)
    alone = _given_alone(wish) + wish.amount_nano <= settings.GRANT_ALONE_USD * NANO_PER_USD
    wish.state = GrantState.BOOKED if alone else GrantState.PENDING
    _insert(wish)
    grant_audit(actor, wish, "grant" if alone else "grant_ask")
    return book(wish) if alone else wish


def reason_clean(reason: str) -> str:
    """Without needless spaces; raises ValidationError on `reason`."""
    reason = " ".join(reason.split())
    if not 1 <= len(reason) <= REASON_CHARS_MAX or not reason.isprintable():
        raise ValidationError({"reason": f"Must have 1 to {REASON_CHARS_MAX} characters."})
    return reason


def one_at_a_time(organization_id: uuid.UUID) -> None:
    """Two grants to one organization are counted one by one, so none slips under the limit."""
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('grant:' || %s, 0))"
    rows(lock, [str(organization_id)])


def grant_audit(actor: Actor, grant: WalletGrant, word: str) -> None:
    audit_record(
        actor,
        f"wallet.{word}",
        subject=grant,
        detail={
            "kind": grant.kind,
            "nano": grant.amount_nano,
            "about": grant.about,
            "reason": grant.reason,
            "asked_by": grant.asked_label,
            "state": grant.state,
        },
    )


_SAME = (
    *("organization", "kind", "amount_nano", "reason", "subject", "terms"),
    *("asked_by", "asked_label"),
)


def _is_new(wanted: WalletGrant) -> bool:
    found = WalletGrant.objects.filter(id=wanted.id).first()
    if found is None:
        return True
    if any(getattr(found, field) != getattr(wanted, field) for field in _SAME):
        raise Conflict(OTHER_FORM)
    return False


def _insert(made: WalletGrant) -> None:
    try:
        with transaction.atomic():
            made.save(force_insert=True)
    except IntegrityError as error:
        # Its row is another organization's, which cannot be seen from here.
        raise Conflict(OTHER_FORM) from error


def _given_alone(wanted: WalletGrant) -> int:
    """What this person has given this organization recently without anybody else."""
    given = WalletGrant.objects.filter(
        asked_by=wanted.asked_by,
        asked_label=wanted.asked_label,
        state=GrantState.BOOKED,
        decided_at__isnull=True,
        created_at__gt=timezone.now() - ALONE_WITHIN,
    )
    return given.aggregate(total=Sum("amount_nano"))["total"] or 0
