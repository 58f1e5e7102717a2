"""Issuing the document of a month that has ended."""

import uuid

from django.core.exceptions import ValidationError

from controlplane.billing.approvals.services import one_at_a_time
from controlplane.billing.documents.lines import NANO_PER_CENT
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.billing.documents.services import document_book, document_keep
from controlplane.billing.invoices.drafts import credit_carry, invoice_draft
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.models import EntryKind
from controlplane.billing.months.periods import Period, open_because
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import require


def invoice_issue(*, actor: Actor, organization_id: uuid.UUID, period: Period) -> Invoice:
    """Number and keep the document of a month that has ended.

    Raises ValidationError where the month still goes on or nothing was charged, Conflict where it
    was issued before.
    """
    require(actor, Action.INVOICE_ISSUE, organization_id)
    if (open_yet := open_because(period)) is not None:
        raise ValidationError({"period": f"{period.name} cannot be invoiced: {open_yet}."})
    made = invoice_draft(actor=actor, organization_id=organization_id, period=period)
    if not made.lines:
        raise ValidationError({"period": f"There are no charges in {period.name}."})
    with organization_scope([organization_id]):
        # Two invoices at once, of two months, do not both carry the same on.
        one_at_a_time(organization_id)
        credit_carry(made)
        document_keep(actor, made)
        _book_rounding(actor, made)
        _book_tax(actor, made)
    return made


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
