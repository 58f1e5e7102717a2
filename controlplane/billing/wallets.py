"""Top-ups and credits that people give: with a reason, above a limit only by two persons.

The wallet itself is a budget row that the journal moves; here is who may move it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import Sum
from django.utils import timezone

from controlplane.billing import accounts
from controlplane.billing.invoice_models import (
    REASON_CHARS_MAX,
    GrantKind,
    GrantState,
    WalletGrant,
)
from controlplane.billing.journal import journal_book
from controlplane.billing.models import EntryKind
from controlplane.billing.wallets_selectors import has_wallet
from controlplane.core.audit import Actor, audit_record
from controlplane.core.conflict import Conflict
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.kernel.money import NANO_PER_USD
from controlplane.tenants.access import require
from controlplane.tenants.selectors_staff import organization_names

GRANT_NANO_MAX = 1_000_000_000 * NANO_PER_USD
# Within this time what one person gives alone is added up, so that it cannot be given in parts.
ALONE_WITHIN = timedelta(days=1)
NOT_ALONE = "Whoever asked for it cannot also approve it."


@dataclass(frozen=True)
class Asker:
    """Who asked for a grant, in whose name it is booked, whoever approved it."""

    actor_id: uuid.UUID | None
    actor_label: str


def wallet_grant(
    *,
    actor: Actor,
    organization_id: uuid.UUID,
    kind: GrantKind,
    amount_nano: int,
    reason: str,
    form: uuid.UUID,
) -> WalletGrant:
    """Put money or credit into a wallet, or ask for it where that takes a second person.

    A top-up makes the organization a prepaid one. `form` is the grant's id: sent twice, it is given
    once. Raises ValidationError that names the field, Conflict where the id stands for another.
    """
    require(actor, Action.CREDIT_GRANT)
    reason = _clean(amount_nano, reason)
    if not organization_names(actor=actor, ids=[organization_id]):
        raise ObjectDoesNotExist("organization")
    made = WalletGrant(
        id=form,
        organization=organization_id,
        kind=GrantKind(kind),
        amount_nano=amount_nano,
        reason=reason,
        asked_by=actor.actor_id,
        asked_label=actor.actor_label,
    )
    with organization_scope([organization_id]):
        _one_at_a_time(organization_id)
        if not _is_new(made):
            return WalletGrant.objects.get(id=form)
        alone = _given_alone(made) + amount_nano <= settings.GRANT_ALONE_USD * NANO_PER_USD
        made.state = GrantState.BOOKED if alone else GrantState.PENDING
        _insert(made)
        word = "grant" if alone else "grant_ask"
        _audit(actor, made, word)
        if alone:
            _book(made)
    return made


def grant_approve(*, actor: Actor, grant: WalletGrant) -> WalletGrant:
    """Give what somebody else asked for; raises PermissionDenied to whoever asked."""
    require(actor, Action.CREDIT_GRANT)
    with organization_scope([grant.organization]):
        if _same_person(actor, grant):
            # Kept although the answer is no: that somebody tried is what the log is for.
            _audit(actor, grant, "grant_approve_refused")
    if _same_person(actor, grant):
        raise PermissionDenied(NOT_ALONE)
    with organization_scope([grant.organization]):
        _one_at_a_time(grant.organization)
        made = _decide(actor, grant, GrantState.BOOKED)
        _audit(actor, made, "grant_approve")
        _book(made)
    return made


def grant_refuse(*, actor: Actor, grant: WalletGrant) -> WalletGrant:
    """Give nothing; whoever asked may take it back this way, too."""
    require(actor, Action.CREDIT_GRANT)
    with organization_scope([grant.organization]):
        made = _decide(actor, grant, GrantState.REFUSED)
        _audit(actor, made, "grant_refuse")
    return made


def _clean(amount_nano: int, reason: str) -> str:
    if not 1 <= amount_nano <= GRANT_NANO_MAX:
        told = f"Must be above 0 and at most {GRANT_NANO_MAX // NANO_PER_USD:,} USD."
        raise ValidationError({"amount": told})
    reason = " ".join(reason.split())
    if not 1 <= len(reason) <= REASON_CHARS_MAX or not reason.isprintable():
        raise ValidationError({"reason": f"Must have 1 to {REASON_CHARS_MAX} characters."})
    return reason


def _one_at_a_time(organization_id: uuid.UUID) -> None:
    """Two grants to one wallet are counted one after the other, so none slips under the limit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('grant:' || %s, 0))",
            [str(organization_id)],
        )


def _is_new(wanted: WalletGrant) -> bool:
    found = WalletGrant.objects.filter(id=wanted.id).first()
    if found is None:
        return True
    fields = ("organization", "kind", "amount_nano", "reason", "asked_by", "asked_label")
    if any(getattr(found, field) != getattr(wanted, field) for field in fields):
        raise Conflict({"form": "This form was sent before with other values."})
    return False


def _insert(made: WalletGrant) -> None:
    try:
        with transaction.atomic():
            made.save(force_insert=True)
    except IntegrityError as error:
        # Its row is another organization's, which cannot be seen from here.
        raise Conflict({"form": "This form was sent before with other values."}) from error


def _given_alone(wanted: WalletGrant) -> int:
    """What this person has given this organization lately without anybody else."""
    rows = WalletGrant.objects.filter(
        asked_by=wanted.asked_by,
        asked_label=wanted.asked_label,
        state=GrantState.BOOKED,
        decided_at__isnull=True,
        created_at__gt=timezone.now() - ALONE_WITHIN,
    )
    return rows.aggregate(total=Sum("amount_nano"))["total"] or 0


def _same_person(actor: Actor, grant: WalletGrant) -> bool:
    return (actor.actor_id, actor.actor_label) == (grant.asked_by, grant.asked_label) or (
        actor.actor_id is not None and actor.actor_id == grant.asked_by
    )


def _decide(actor: Actor, grant: WalletGrant, state: GrantState) -> WalletGrant:
    """The row as decided; the condition picks one of two who decide at once."""
    decided = WalletGrant.objects.filter(id=grant.id, state=GrantState.PENDING).update(
        state=state,
        decided_by=actor.actor_id,
        decided_label=actor.actor_label,
        decided_at=timezone.now(),
    )
    if not decided:
        raise Conflict({"grant": "Somebody has decided on it already."})
    return WalletGrant.objects.get(id=grant.id)


def _book(grant: WalletGrant) -> None:
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
        actor=Asker(grant.asked_by, grant.asked_label),
        approved_by=grant.decided_label or None,
    )


def _audit(actor: Actor, grant: WalletGrant, word: str) -> None:
    audit_record(
        actor,
        f"wallet.{word}",
        subject=grant,
        organization_id=grant.organization,
        detail={
            "kind": grant.kind,
            "nano": grant.amount_nano,
            "reason": grant.reason,
            "asked_by": grant.asked_label,
            "state": grant.state,
        },
    )
