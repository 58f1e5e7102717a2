"""Issuing documents: what is issued is never changed, only corrected by a document of its own.

A document, its number and its bookings are one transaction; the number's row is locked in it.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import IntegrityError, connection, transaction
from psycopg.errors import UniqueViolation

from controlplane.billing import accounts
from controlplane.billing.grants import one_at_a_time
from controlplane.billing.invoice_drafts import (
    OWN,
    credit_carry,
    document_digest,
    invoice_draft,
)
from controlplane.billing.invoice_lines import NANO_PER_CENT
from controlplane.billing.invoice_models import (
    ADDRESS_CHARS_MAX,
    BASIS_POINTS_MAX,
    JURISDICTION_CHARS_MAX,
    NAME_CHARS_MAX,
    TAX_ID_CHARS_MAX,
    TERMS_DAYS_MAX,
    BillingProfile,
    DocumentKind,
    Invoice,
)
from controlplane.billing.journal import journal_book
from controlplane.billing.models import EntryKind
from controlplane.billing.periods import Period
from controlplane.core.audit import Actor, audit_record
from controlplane.core.conflict import Conflict
from controlplane.core.mail import NOT_EMAIL, is_email
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import allows, require

_ONE_OF_A_PERIOD = "one_invoice_of_a_period"


def invoice_issue(*, actor: Actor, organization_id: uuid.UUID, period: Period) -> Invoice:
    """Number and keep the document of a month that has ended.

    Raises ValidationError where the month still goes on or nothing was charged, Conflict where it
    was issued before.
    """
    require(actor, Action.INVOICE_ISSUE, organization_id)
    open_yet = _open_yet(period)
    if open_yet is not None:
        raise ValidationError({"period": f"{period.name} cannot be invoiced: {open_yet}."})
    made = invoice_draft(actor=actor, organization_id=organization_id, period=period)
    if not made.lines:
        raise ValidationError({"period": f"Nothing was charged in {period.name}."})
    with organization_scope([organization_id]):
        # Two invoices at once, of two months, do not both carry the same on.
        one_at_a_time(organization_id)
        credit_carry(made)
        document_keep(actor, made)
        _book_rounding(actor, made)
        _book_tax(actor, made)
    return made


def document_keep(actor: Actor, made: Invoice) -> None:
    """Save a document under the next number of its kind, and audit it; inside its scope."""
    made.issued_by = actor.actor_label
    made.digest = document_digest(made)
    try:
        with transaction.atomic():
            made.save(force_insert=True)
    except IntegrityError as error:
        cause = error.__cause__
        if isinstance(cause, UniqueViolation) and cause.diag.constraint_name == _ONE_OF_A_PERIOD:
            raise Conflict({"period": f"{made.period} was issued before."}) from error
        raise
    made.refresh_from_db(fields=["number"])
    audit_record(
        actor,
        f"{made.kind}.issue",
        subject=made,
        organization_id=made.organization,
        detail={
            "number": made.title,
            "period": made.period,
            "total_cents": made.total_cents,
            "carried_cents": made.carried_cents,
            "subtotal_nano": made.subtotal_nano,
            "digest": made.digest.hex(),
            "reason": made.reason,
        },
    )


def document_book(actor: Actor, document: Invoice, **booking: Any) -> None:
    """Book an entry of a document, once; an amount below zero goes the other way."""
    nano: int = booking.pop("nano")
    part: str = booking.pop("part")
    if nano == 0:
        return
    if nano < 0:
        booking["debit"], booking["credit"] = booking["credit"], booking["debit"]
    journal_book(
        organization=document.organization,
        nano=abs(nano),
        reference=document.title,
        idempotency=f"{OWN}{document.id}:{part}",
        actor=actor,
        **booking,
    )


def _book_rounding(actor: Actor, document: Invoice) -> None:
    if document.kind == DocumentKind.INVOICE:
        document_book(
            actor,
            document,
            part="rounding",
            kind=EntryKind.INVOICE_ROUNDING,
            debit=accounts.receivable(document.organization),
            credit=accounts.ROUNDING,
            nano=document.rounding_nano,
            reason=f"Rounding of {document.title} to whole cents",
        )


def _book_tax(actor: Actor, document: Invoice) -> None:
    document_book(
        actor,
        document,
        part="tax",
        kind=EntryKind.TAX,
        debit=accounts.receivable(document.organization),
        credit=accounts.tax(document.tax_jurisdiction),
        nano=document.tax_cents * NANO_PER_CENT,
        reason=f"Tax of {document.title}",
    )


def _open_yet(period: Period) -> str | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_period_open(%s)", [period.end])
        told: str | None = cursor.fetchone()[0]
        return told


@dataclass(frozen=True, kw_only=True)
class ProfileDraft:
    """A billing profile's values; `terms_days` None takes the installation's."""

    name: str = ""
    address: str = ""
    tax_id: str = ""
    email: str = ""
    terms_days: int | None = None
    tax_basis_points: int = 0
    tax_jurisdiction: str = ""


_TERMS = ("terms_days", "tax_basis_points", "tax_jurisdiction")


def billing_profile_set(
    *, actor: Actor, organization_id: uuid.UUID, draft: ProfileDraft
) -> BillingProfile:
    """Set to whom documents go; terms and tax only by those who grant credit.

    Raises ValidationError that names the field. Documents that are issued stay as they are.
    """
    if not allows(actor, Action.CREDIT_GRANT):
        require(actor, Action.INVOICE_ISSUE, organization_id)
    wanted = _clean(draft)
    with organization_scope([organization_id]):
        known = BillingProfile.objects.filter(organization=organization_id).first()
        before = known or BillingProfile(organization=organization_id)
        if any(wanted[name] != getattr(before, name) for name in _TERMS) and not allows(
            actor, Action.CREDIT_GRANT
        ):
            raise PermissionDenied(Action.CREDIT_GRANT)
        made, _ = BillingProfile.objects.update_or_create(
            organization=organization_id, defaults=wanted
        )
        audit_record(
            actor,
            "billing_profile.set",
            subject=made,
            organization_id=organization_id,
            detail=wanted,
        )
    return made


def _clean(draft: ProfileDraft) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "name": " ".join(draft.name.split()),
        "address": "\n".join(filter(None, (row.strip() for row in draft.address.splitlines()))),
        "tax_id": " ".join(draft.tax_id.split()),
        "email": draft.email.strip(),
        "terms_days": draft.terms_days,
        "tax_basis_points": draft.tax_basis_points,
        "tax_jurisdiction": " ".join(draft.tax_jurisdiction.split()),
    }
    bounds = {
        "name": NAME_CHARS_MAX,
        "address": ADDRESS_CHARS_MAX,
        "tax_id": TAX_ID_CHARS_MAX,
        "tax_jurisdiction": JURISDICTION_CHARS_MAX,
    }
    for field, chars in bounds.items():
        if len(wanted[field]) > chars or not wanted[field].replace("\n", "").isprintable():
            raise ValidationError({field: f"Must have at most {chars} printable characters."})
    if wanted["email"] and not is_email(wanted["email"]):
        raise ValidationError({"email": NOT_EMAIL})
    if draft.terms_days is not None and not 0 <= draft.terms_days <= TERMS_DAYS_MAX:
        raise ValidationError({"terms_days": f"Must be 0 to {TERMS_DAYS_MAX}, or nothing."})
    if not 0 <= draft.tax_basis_points <= BASIS_POINTS_MAX:
        raise ValidationError({"tax_basis_points": f"Must be 0 to {BASIS_POINTS_MAX}."})
    if draft.tax_basis_points and not wanted["tax_jurisdiction"]:
        raise ValidationError({"tax_jurisdiction": "Must be named where there is a tax."})
    return wanted
