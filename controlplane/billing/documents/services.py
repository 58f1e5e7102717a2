"""Making documents: what is issued is never changed, only corrected by a document of its own.

A document, its number and its bookings are one transaction; the number's row is locked in it.
"""

import uuid
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction
from psycopg.errors import UniqueViolation

from controlplane.billing.documents.lines import NANO_PER_CENT, Line, document_totals, lines_json
from controlplane.billing.documents.models import BillingProfile, DocumentKind, Invoice
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.journal import journal_book
from controlplane.billing.ledger.models import EntryKind
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.errors.body import Conflict

# Bookings of the documents themselves: what they say already stands on a document.
OWN = "document:"
_ONE_OF_A_PERIOD = "one_invoice_of_a_period"


def document_make(
    *,
    organization_id: uuid.UUID,
    kind: DocumentKind,
    period: str,
    lines: list[Line],
    profile: BillingProfile,
    name: str,
) -> Invoice:
    """An unsaved document of these lines, issued today on the organization's terms."""
    tax = profile.tax_basis_points if kind == DocumentKind.INVOICE else 0
    totals = document_totals(lines, tax)
    today = datetime.now(UTC).date()
    terms = profile.terms_days
    days = settings.INVOICE_TERMS_DAYS if terms is None else terms
    return Invoice(
        organization=organization_id,
        kind=kind,
        period=period,
        issued_on=today,
        due_on=today + timedelta(days=days),
        issuer=settings.INVOICE_ISSUER,
        customer=_customer(profile, name),
        lines=lines_json(lines),
        subtotal_nano=totals.subtotal_nano,
        prepaid_nano=totals.prepaid_nano,
        net_cents=totals.net_cents,
        tax_cents=totals.tax_cents,
        total_cents=totals.total_cents,
        tax_basis_points=tax,
        tax_jurisdiction=profile.tax_jurisdiction if tax else "",
    )


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
            raise Conflict({"period": f"{made.period} was already invoiced."}) from error
        raise
    made.refresh_from_db(fields=["number"])
    audit_record(
        actor,
        f"{made.kind}.issue",
        subject=made,
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


def cents_book(
    actor: Actor, document: Invoice, *, rounding_nano: int, approved_by: str | None = None
) -> None:
    """Book its rounding to whole cents and its tax: to what is owed, of a note from there."""
    owed = accounts.receivable(document.organization)
    for part, kind, nano, account, reason in (
        ("rounding", EntryKind.INVOICE_ROUNDING, rounding_nano, accounts.ROUNDING,
         f"Rounding of {document.title} to whole cents"),
        ("tax", EntryKind.TAX, document.tax_cents * NANO_PER_CENT,
         accounts.tax(document.tax_jurisdiction), f"Tax of {document.title}"),
    ):  # fmt: skip
        gives = document.kind == DocumentKind.CREDIT_NOTE
        debit, credit = (account, owed) if gives else (owed, account)
        document_book(
            actor, document, part=part, kind=kind, debit=debit, credit=credit, nano=nano,
            reason=reason, approved_by=approved_by,
        )  # fmt: skip


def document_digest(document: Invoice) -> bytes:
    """SHA-256 over all that the document says but for its number, which the database gives."""
    said = {name: getattr(document, name) for name in _SAID}
    if document.carried_cents:
        said["carried_cents"] = document.carried_cents
    said["dates"] = [document.issued_on.isoformat(), document.due_on.isoformat()]
    said["organization"] = document.organization.hex
    return sha256(msgspec.json.encode(said, order="deterministic")).digest()


_SAID = (
    *("kind", "period", "issuer", "customer", "lines", "subtotal_nano", "prepaid_nano"),
    *("net_cents", "tax_cents", "total_cents", "tax_basis_points", "tax_jurisdiction", "reason"),
)


def _customer(profile: BillingProfile, name: str) -> dict[str, str]:
    return {
        "name": profile.name or name,
        "address": profile.address,
        "tax_id": profile.tax_id,
        "email": profile.email,
    }
