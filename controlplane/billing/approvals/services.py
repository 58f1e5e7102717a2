"""What people give: booked at once, or above a limit once a second person agrees.

Top-ups, credits, credit notes, reversals and bank payments entered by hand all begin here; what
books each of them, once it may be, is named in `decisions`. This lock of an organization comes
before a month's (`reversals`), and both before those of the ledger's functions.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import Sum
from django.utils import timezone

from controlplane.billing.approvals.models import (
    REASON_CHARS_MAX,
    GrantKind,
    GrantState,
    WalletGrant,
)
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.errors.conflict import Conflict
from controlplane.kernel.money import NANO_PER_USD

# Within this time what one person gives alone is added up, so that it cannot be given in parts.
ALONE_WITHIN = timedelta(days=1)
Made = TypeVar("Made")


@dataclass(frozen=True)
class Asker:
    """Who asked for a grant, in whose name it is booked, whoever approved it."""

    actor_id: uuid.UUID | None
    actor_label: str


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a person wants to give. `subject` is the invoice or request that it is about.

    `terms` are what else booking it takes, as JSON; `about` says in words what `subject` is. `form`
    is the grant's id: sent twice, it is given once.
    """

    organization: uuid.UUID
    kind: GrantKind
    amount_nano: int
    reason: str
    form: uuid.UUID
    subject: uuid.UUID | None = None
    about: str = ""
    terms: dict[str, Any]


def asker_of(grant: WalletGrant) -> Asker:
    return Asker(grant.asked_by, grant.asked_label)


def subject_of(grant: WalletGrant) -> uuid.UUID:
    """The invoice or request that it is about; raises ObjectDoesNotExist where there is none."""
    if grant.subject is None:
        raise ObjectDoesNotExist("subject")
    return grant.subject


def grant_ask(
    *, actor: Actor, wish: Wish, book: Callable[[WalletGrant], Made]
) -> Made | WalletGrant:
    """Book it if this person may give so much alone; else the grant that waits for a second one.

    Inside the organization's scope, for who may. Sent again, it is the grant of before. Raises
    Conflict where the form stands for another.
    """
    made = WalletGrant(
        id=wish.form,
        organization=wish.organization,
        kind=wish.kind,
        amount_nano=wish.amount_nano,
        reason=wish.reason,
        subject=wish.subject,
        about=wish.about,
        terms=wish.terms,
        asked_by=actor.actor_id,
        asked_label=actor.actor_label,
    )
    one_at_a_time(wish.organization)
    if not _is_new(made):
        return WalletGrant.objects.get(id=wish.form)
    alone = _given_alone(made) + wish.amount_nano <= settings.GRANT_ALONE_USD * NANO_PER_USD
    made.state = GrantState.BOOKED if alone else GrantState.PENDING
    _insert(made)
    grant_audit(actor, made, "grant" if alone else "grant_ask")
    return book(made) if alone else made


def reason_clean(reason: str) -> str:
    """Without needless spaces; raises ValidationError on `reason`."""
    reason = " ".join(reason.split())
    if not 1 <= len(reason) <= REASON_CHARS_MAX or not reason.isprintable():
        raise ValidationError({"reason": f"Must have 1 to {REASON_CHARS_MAX} characters."})
    return reason


def one_at_a_time(organization_id: uuid.UUID) -> None:
    """Two grants to one organization are counted one by one, so none slips under the limit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('grant:' || %s, 0))",
            [str(organization_id)],
        )


def grant_audit(actor: Actor, grant: WalletGrant, word: str) -> None:
    audit_record(
        actor,
        f"wallet.{word}",
        subject=grant,
        organization_id=grant.organization,
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
        raise Conflict({"form": "This form was already submitted with different values."})
    return False


def _insert(made: WalletGrant) -> None:
    try:
        with transaction.atomic():
            made.save(force_insert=True)
    except IntegrityError as error:
        # Its row is another organization's, which cannot be seen from here.
        raise Conflict(
            {"form": "This form was already submitted with different values."}
        ) from error


def _given_alone(wanted: WalletGrant) -> int:
    """What this person has given this organization recently without anybody else."""
    rows = WalletGrant.objects.filter(
        asked_by=wanted.asked_by,
        asked_label=wanted.asked_label,
        state=GrantState.BOOKED,
        decided_at__isnull=True,
        created_at__gt=timezone.now() - ALONE_WITHIN,
    )
    return rows.aggregate(total=Sum("amount_nano"))["total"] or 0
