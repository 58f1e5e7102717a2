"""Documents and payments as programs see them: whole numbers of cents, nano- and pico-USD."""

from __future__ import annotations

import uuid
from typing import TypedDict

from controlplane.billing.dunning import Standing
from controlplane.billing.invoice_lines import Line, lines_read
from controlplane.billing.invoice_models import CURRENCY, BillingProfile, Invoice, Payment
from controlplane.billing.invoice_text import line_words
from controlplane.billing.invoices_selectors import invoice_found
from controlplane.core.audit import Actor


class InvoiceJson(TypedDict):
    """A document without its lines; `state` is where it stands today."""

    id: str
    object: str
    kind: str
    number: str
    period: str
    issued_on: str
    due_on: str
    currency: str
    subtotal_nano: int
    prepaid_nano: int
    rounding_nano: int
    net_cents: int
    tax_cents: int
    total_cents: int
    carried_cents: int
    tax_basis_points: int
    tax_jurisdiction: str
    paid_cents: int
    credited_cents: int
    open_cents: int
    state: str
    corrects: str | None
    reason: str


class LineJson(TypedDict):
    """One line; amounts in pico-USD, a price in pico-USD per token."""

    position: int
    kind: str
    description: str
    project: str
    project_name: str
    model: str
    token_type: str
    quantity: int
    unit_pico: int
    amount_pico: int


class PaymentJson(TypedDict):
    """Money that came in."""

    id: str
    object: str
    provider: str
    reference: str
    amount_cents: int
    invoice: str | None
    booked_at: str


class SaidJson(TypedDict):
    """What a document says beside its sums."""

    issuer: dict[str, str]
    customer: dict[str, str]
    lines: list[LineJson]


class WholeInvoiceJson(InvoiceJson, SaidJson):
    """A document with its lines, and what refers to it."""

    notes: list[str]
    payments: list[PaymentJson]


class StandingJson(TypedDict):
    """Where it stands: its worst open invoice, all that is open, and what is left over."""

    stage: str
    open_cents: int
    credit_cents: int
    invoices: list[InvoiceJson]


class ProfileJson(TypedDict):
    """To whom documents go, on what terms."""

    name: str
    address: str
    tax_id: str
    email: str
    terms_days: int | None
    tax_basis_points: int
    tax_jurisdiction: str


def invoice_json(standing: Standing) -> InvoiceJson:
    """A document for programs, without its lines."""
    invoice = standing.invoice
    return {
        "id": str(invoice.id),
        "object": "invoice",
        "kind": invoice.kind,
        "number": invoice.title,
        "period": invoice.period,
        "issued_on": invoice.issued_on.isoformat(),
        "due_on": invoice.due_on.isoformat(),
        "currency": CURRENCY,
        "subtotal_nano": invoice.subtotal_nano,
        "prepaid_nano": invoice.prepaid_nano,
        "rounding_nano": invoice.rounding_nano,
        "net_cents": invoice.net_cents,
        "tax_cents": invoice.tax_cents,
        "total_cents": invoice.total_cents,
        "carried_cents": invoice.carried_cents,
        "tax_basis_points": invoice.tax_basis_points,
        "tax_jurisdiction": invoice.tax_jurisdiction,
        "paid_cents": standing.paid_cents,
        "credited_cents": standing.credited_cents,
        "open_cents": standing.open_cents,
        "state": standing.words if invoice.number else "draft",
        "corrects": str(invoice.corrects_id) if invoice.corrects_id else None,
        "reason": invoice.reason,
    }


def draft_json(draft: Invoice) -> WholeInvoiceJson:
    """What a month would be invoiced for; it has no number and no state."""
    standing = Standing(draft, 0, 0, draft.issued_on)
    return {**invoice_json(standing), **_said(draft), "notes": [], "payments": []}


def whole_json(
    *, actor: Actor, organization_id: uuid.UUID, invoice_id: uuid.UUID
) -> WholeInvoiceJson:
    """One document with everything; raises DoesNotExist."""
    found = invoice_found(actor=actor, organization_id=organization_id, invoice_id=invoice_id)
    return {
        **invoice_json(found.standing),
        **_said(found.standing.invoice),
        "notes": [str(note.id) for note in found.notes],
        "payments": [payment_json(payment) for payment in found.payments],
    }


def payment_json(payment: Payment) -> PaymentJson:
    """A payment for programs."""
    return {
        "id": str(payment.id),
        "object": "payment",
        "provider": payment.provider,
        "reference": payment.reference,
        "amount_cents": payment.amount_cents,
        "invoice": str(payment.invoice_id) if payment.invoice_id else None,
        "booked_at": payment.created_at.isoformat(),
    }


def profile_json(profile: BillingProfile) -> ProfileJson:
    """A billing profile for programs."""
    return {
        "name": profile.name,
        "address": profile.address,
        "tax_id": profile.tax_id,
        "email": profile.email,
        "terms_days": profile.terms_days,
        "tax_basis_points": profile.tax_basis_points,
        "tax_jurisdiction": profile.tax_jurisdiction,
    }


def _said(invoice: Invoice) -> SaidJson:
    return {
        "issuer": invoice.issuer,
        "customer": invoice.customer,
        "lines": [_line_json(line) for line in lines_read(invoice.lines)],
    }


def _line_json(line: Line) -> LineJson:
    return {
        "position": line.position,
        "kind": line.kind.value,
        "description": line_words(line),
        "project": line.project,
        "project_name": line.project_name,
        "model": line.model,
        "token_type": line.token_type,
        "quantity": line.quantity,
        "unit_pico": line.unit_pico,
        "amount_pico": line.amount_pico,
    }
