"""Invoices under /api/billing/organizations/<id>/: preview, issue, files, standing, profile."""

from datetime import date
from typing import TypedDict
from uuid import UUID

import msgspec
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.documents import profiles
from controlplane.billing.documents.lines import Line, lines_read
from controlplane.billing.documents.models import CURRENCY, BillingProfile, Invoice
from controlplane.billing.documents.text import invoice_csv, line_words
from controlplane.billing.invoices.selectors import invoice_found, invoice_list
from controlplane.billing.invoices.services import invoice_draft, invoice_issue
from controlplane.billing.months.periods import Period
from controlplane.billing.payments.api import PaymentJson, payment_json
from controlplane.billing.payments.dunning import Standing, worst
from controlplane.billing.payments.selectors import credit_cents, open_invoices
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import CREATED, operation
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.kernel.ids import InvoiceId, public_id
from controlplane.tenants.access import require

FILES = {"pdf": "application/pdf", "csv": "text/csv; charset=utf-8"}


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


def whole_json(*, actor: Actor, organization_id: UUID, invoice_id: UUID) -> WholeInvoiceJson:
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


class PeriodBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which month."""

    period: str


class Invoices(MoneyView, at="invoices"):
    @operation(list_of=InvoiceJson)
    def get(self) -> Response:
        """List invoices, statements and credit notes."""
        return self.page(invoice_list(**self.whose(), ask=self.page_ask("inv")), invoice_json)

    @operation(
        body=PeriodBody,
        answer={CREATED: WholeInvoiceJson},
        example={"period": "2026-10"},
        step_up=True,
    )
    def post(self, organization_id: UUID) -> WholeInvoiceJson:
        """Issue the invoice of a month; 409 if it was already issued."""
        require(self.actor(), Action.INVOICE_ISSUE, organization_id)
        period = Period(self.body(PeriodBody).period)
        made = invoice_issue(**self.whose(), period=period)
        return whole_json(**self.whose(), invoice_id=made.id)


class Preview(MoneyView, at="invoices/preview"):
    @operation(answer=WholeInvoiceJson)
    def get(self) -> WholeInvoiceJson:
        """Preview the invoice of a month; not saved, without a number."""
        period = Period(self.request.query_params.get("period", ""))
        draft = invoice_draft(**self.whose(), period=period)
        return draft_json(draft)


class OneInvoice(MoneyView, at="invoices/<inv:invoice_id>"):
    @operation(answer=WholeInvoiceJson)
    def get(self, invoice_id: UUID) -> WholeInvoiceJson:
        """Get a document as issued; `paid` and `open` are as of today."""
        return whole_json(**self.whose(), invoice_id=invoice_id)


class InvoiceFile(MoneyView):
    @extend_schema(
        responses={(200, kind): OpenApiTypes.BINARY for kind in ("application/pdf", "text/csv")}
    )
    def get(
        self, request: Request, organization_id: UUID, invoice_id: UUID, form: str
    ) -> HttpResponse:
        """`raw=1` leaves the guard against formulas out of a CSV file."""
        document = profiles.invoice_get(**self.whose(), invoice_id=invoice_id)
        return file_answer(document, form, raw=request.query_params.get("raw") == "1")


class OrganizationStanding(MoneyView, at="standing"):
    @operation(answer=StandingJson)
    def get(self) -> StandingJson:
        """Get what is due and overdue; nothing is suspended automatically."""
        found = open_invoices(**self.whose())
        body: StandingJson = {
            "stage": worst(found).words,
            "open_cents": sum(each.open_cents for each in found),
            "credit_cents": credit_cents(**self.whose()),
            "invoices": [invoice_json(each) for each in found],
        }
        return body


class Profile(MoneyView, at="billing-profile"):
    @operation(answer=ProfileJson)
    def get(self) -> ProfileJson:
        """Get the billing address for future documents."""
        found = profiles.billing_profile(**self.whose())
        return profile_json(found)

    @operation(body=profiles.ProfileDraft, answer=ProfileJson, step_up=True)
    def put(self, wanted: profiles.ProfileDraft) -> ProfileJson:
        """Replace the billing address; only staff can change terms and tax."""
        made = profiles.billing_profile_set(**self.whose(), draft=wanted)
        return profile_json(made)


def file_answer(document: Invoice, form: str, *, raw: bool = False) -> HttpResponse:
    # Not above: its library takes a sixth of the start of all who know the URLs.
    from controlplane.billing.documents.pdf import invoice_pdf

    body = invoice_pdf(document) if form == "pdf" else invoice_csv(document, raw=raw)
    name = f"{document.title if document.number else f'Draft-{document.period}'}.{form}"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, no-cache",
    }
    return HttpResponse(body, content_type=FILES[form], headers=headers)
