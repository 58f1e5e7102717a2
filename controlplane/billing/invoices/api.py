"""Invoices under /api/billing/organizations/<id>/: preview, issue, files, standing, profile."""

from uuid import UUID

import msgspec
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.api import MoneyView
from controlplane.billing.documents.csv import invoice_csv
from controlplane.billing.documents.models import Invoice
from controlplane.billing.documents.profiles import ProfileDraft, billing_profile_set
from controlplane.billing.documents.selectors import billing_profile, invoice_get
from controlplane.billing.invoices.drafts import invoice_draft
from controlplane.billing.invoices.selectors import invoice_list
from controlplane.billing.invoices.services import invoice_issue
from controlplane.billing.invoices.shapes import (
    InvoiceJson,
    ProfileJson,
    StandingJson,
    WholeInvoiceJson,
    draft_json,
    invoice_json,
    profile_json,
    whole_json,
)
from controlplane.billing.months.periods import Period
from controlplane.billing.payments.dunning import worst
from controlplane.billing.payments.selectors import credit_cents, open_invoices
from controlplane.core.api.schema import operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.tenants.access import require

CREATED = 201
FILES = {"pdf": "application/pdf", "csv": "text/csv; charset=utf-8"}


class PeriodBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which month."""

    period: str


class ProfileBody(msgspec.Struct, forbid_unknown_fields=True):
    """To whom documents go; terms and tax are set by those who grant credit."""

    name: str = ""
    address: str = ""
    tax_id: str = ""
    email: str = ""
    terms_days: int | None = None
    tax_basis_points: int = 0
    tax_jurisdiction: str = ""


class Invoices(MoneyView):
    """`GET | POST invoices`: the documents, newest first, and the one of a month that has ended."""

    step_up_methods = frozenset({"POST"})

    @operation(list_of=InvoiceJson)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """List invoices, statements and credit notes."""
        found = invoice_list(
            actor=self.actor(), organization_id=organization_id, ask=self.page_ask("inv")
        )
        return self.page(found, invoice_json)

    @operation(
        body=PeriodBody, answer=WholeInvoiceJson, status=CREATED, example={"period": "2026-10"}
    )
    def post(self, request: Request, organization_id: UUID) -> Response:
        """Issue the invoice of a month; 409 if it was already issued."""
        require(self.actor(), Action.INVOICE_ISSUE, organization_id)
        period = Period(self.body(PeriodBody).period)
        made = invoice_issue(actor=self.actor(), organization_id=organization_id, period=period)
        return Response(_whole(self, organization_id, made.id), status=CREATED)


class Preview(MoneyView):
    """`GET invoices/preview?period=2026-11`: what a month would be invoiced for as it stands."""

    @operation(answer=WholeInvoiceJson)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Preview the invoice of a month; not saved, without a number."""
        period = Period(request.query_params.get("period", ""))
        draft = invoice_draft(actor=self.actor(), organization_id=organization_id, period=period)
        return Response(draft_json(draft))


class OneInvoice(MoneyView):
    """`GET invoices/<id>`: one document with its lines."""

    @operation(answer=WholeInvoiceJson)
    def get(self, request: Request, organization_id: UUID, invoice_id: UUID) -> Response:
        """Get a document as issued; `paid` and `open` are as of today."""
        return Response(_whole(self, organization_id, invoice_id))


class InvoiceFile(MoneyView):
    """`GET invoices/<id>.pdf | .csv`: the document as a file, the same bytes each time."""

    @extend_schema(
        responses={(200, kind): OpenApiTypes.BINARY for kind in ("application/pdf", "text/csv")}
    )
    def get(
        self, request: Request, organization_id: UUID, invoice_id: UUID, form: str
    ) -> HttpResponse:
        """`raw=1` leaves the guard against formulas out of a CSV file."""
        document = invoice_get(
            actor=self.actor(), organization_id=organization_id, invoice_id=invoice_id
        )
        return file_answer(document, form, raw=request.query_params.get("raw") == "1")


class OrganizationStanding(MoneyView):
    """`GET standing`: what is owed, and how late it is."""

    @operation(answer=StandingJson)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Get what is due and overdue; nothing is suspended automatically."""
        found = open_invoices(actor=self.actor(), organization_id=organization_id)
        body: StandingJson = {
            "stage": worst(found).words,
            "open_cents": sum(each.open_cents for each in found),
            "credit_cents": credit_cents(actor=self.actor(), organization_id=organization_id),
            "invoices": [invoice_json(each) for each in found],
        }
        return Response(body)


class Profile(MoneyView):
    """`GET | PUT profile`: to whom documents go, on what terms and with which tax."""

    step_up_methods = frozenset({"PUT"})

    @operation(answer=ProfileJson)
    def get(self, request: Request, organization_id: UUID) -> Response:
        """Get the billing address for future documents."""
        found = billing_profile(actor=self.actor(), organization_id=organization_id)
        return Response(profile_json(found))

    @operation(body=ProfileBody, answer=ProfileJson)
    def put(self, request: Request, organization_id: UUID) -> Response:
        """Replace the billing address; only staff can change terms and tax."""
        wanted = ProfileDraft(**msgspec.structs.asdict(self.body(ProfileBody)))
        made = billing_profile_set(
            actor=self.actor(), organization_id=organization_id, draft=wanted
        )
        return Response(profile_json(made))


def file_answer(document: Invoice, form: str, *, raw: bool = False) -> HttpResponse:
    # Not above: its library takes a sixth of the start of all who know the URLs.
    from controlplane.billing.documents.pdf import invoice_pdf

    body = invoice_pdf(document) if form == "pdf" else invoice_csv(document, raw=raw)
    name = f"{document.title}.{form}"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, no-cache",
    }
    return HttpResponse(body, content_type=FILES[form], headers=headers)


def _whole(view: ApiView, organization_id: UUID, invoice_id: UUID) -> WholeInvoiceJson:
    return whole_json(actor=view.actor(), organization_id=organization_id, invoice_id=invoice_id)
