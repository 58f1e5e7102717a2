"""Documents as programs see them: whole numbers of cents, nano- and pico-USD."""

import uuid
from datetime import date
from typing import TypedDict

from controlplane.billing.documents.lines import Line, lines_read
from controlplane.billing.documents.models import CURRENCY, BillingProfile, Invoice
from controlplane.billing.documents.text import line_words
from controlplane.billing.invoices.selectors import invoice_found
from controlplane.billing.payments.dunning import Standing
from controlplane.billing.payments.shapes import PaymentJson, payment_json
from controlplane.core.answers import answer_of
from controlplane.core.audit.entries import Actor
from controlplane.kernel.ids import InvoiceId, public_id


class InvoiceJson(TypedDict):
    """A document without its lines; `state` is where it stands today."""

    id: InvoiceId
    object: str
    kind: str
    number: str
    period: str
    issued_on: date
    due_on: date
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
    corrects: InvoiceId | None
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


class SaidJson(TypedDict):
    """What a document says beside its sums."""

    issuer: dict[str, str]
    customer: dict[str, str]
    lines: list[LineJson]


class WholeInvoiceJson(InvoiceJson, SaidJson):
    """A document with its lines, and what refers to it."""

    notes: list[InvoiceId]
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
    return answer_of(
        InvoiceJson,
        invoice,
        object="invoice",
        number=invoice.title,
        currency=CURRENCY,
        paid_cents=standing.paid_cents,
        credited_cents=standing.credited_cents,
        open_cents=standing.open_cents,
        state=standing.words if invoice.number else "draft",
        corrects=invoice.corrects_id,
    )


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
        "notes": [public_id("inv", note.id) for note in found.notes],
        "payments": [payment_json(payment) for payment in found.payments],
    }


def profile_json(profile: BillingProfile) -> ProfileJson:
    return answer_of(ProfileJson, profile)


def _said(invoice: Invoice) -> SaidJson:
    return {
        "issuer": invoice.issuer,
        "customer": invoice.customer,
        "lines": [_line_json(line) for line in lines_read(invoice.lines)],
    }


def _line_json(line: Line) -> LineJson:
    project = line.project and public_id("proj", line.project)
    return answer_of(LineJson, line, description=line_words(line), project=project)
