"""Invoices under /api/billing/organizations/<id>/: preview, issue, files, notes, payments."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.dunning import worst
from controlplane.billing.grants_json import WAITS, GrantJson, grant_json
from controlplane.billing.invoice_credit import credit_note_issue
from controlplane.billing.invoice_csv import invoice_csv
from controlplane.billing.invoice_drafts import invoice_draft
from controlplane.billing.invoice_models import Invoice, WalletGrant
from controlplane.billing.invoice_pdf import invoice_pdf
from controlplane.billing.invoices import ProfileDraft, billing_profile_set, invoice_issue
from controlplane.billing.invoices_json import (
    InvoiceJson,
    PaymentJson,
    ProfileJson,
    StandingJson,
    WholeInvoiceJson,
    draft_json,
    invoice_json,
    payment_json,
    profile_json,
    whole_json,
)
from controlplane.billing.invoices_selectors import (
    billing_profile,
    credit_cents,
    invoice_get,
    invoice_list,
    open_invoices,
)
from controlplane.billing.payments import payment_record
from controlplane.billing.periods import Period
from controlplane.billing.wallets_selectors import may_see_money
from controlplane.core.api import ApiView
from controlplane.core.api_schema import operation
from controlplane.core.permissions import Action
from controlplane.tenants.access import require

CREATED = 201
FILES = {"pdf": "application/pdf", "csv": "text/csv; charset=utf-8"}


class PeriodBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which month."""

    period: str


class CreditedBody(msgspec.Struct, forbid_unknown_fields=True):
    """A line by its position, and how much of it is given back."""

    position: int
    amount_nano: int


class CreditBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why, and which lines; without lines all that is left. Sent twice with an id: given once."""

    reason: str
    lines: list[CreditedBody] | None = None
    id: uuid.UUID | None = None


class PaymentBody(msgspec.Struct, forbid_unknown_fields=True):
    """A bank transfer; `reference` is the bank's."""

    amount_cents: int
    reference: str


class ProfileBody(msgspec.Struct, forbid_unknown_fields=True):
    """To whom documents go; terms and tax are set by those who grant credit."""

    name: str = ""
    address: str = ""
    tax_id: str = ""
    email: str = ""
    terms_days: int | None = None
    tax_basis_points: int = 0
    tax_jurisdiction: str = ""


class MoneyView(ApiView):
    """Rights come before bodies: whoever may not see the money learns nothing else either."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Before a body is read."""
        super().initial(request, *args, **kwargs)
        may_see_money(self.actor(), kwargs["organization_id"])


class Invoices(MoneyView):
    """`GET | POST invoices`: the documents, newest first, and the one of a month that has ended."""

    step_up_methods = frozenset({"POST"})

    @operation(list_of=InvoiceJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Invoices, statements and credit notes."""
        found = invoice_list(
            actor=self.actor(), organization_id=organization_id, ask=self.page_ask()
        )
        return self.page(found, invoice_json)

    @operation(
        body=PeriodBody, answer=WholeInvoiceJson, status=CREATED, example={"period": "2026-10"}
    )
    def post(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Issues the month's document; 409 where that was done before."""
        require(self.actor(), Action.INVOICE_ISSUE, organization_id)
        period = Period(self.body(PeriodBody).period)
        made = invoice_issue(actor=self.actor(), organization_id=organization_id, period=period)
        return Response(_whole(self, organization_id, made.id), status=CREATED)


class Preview(MoneyView):
    """`GET invoices/preview?period=2026-11`: what a month would be invoiced for as it stands."""

    @operation(answer=WholeInvoiceJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Nothing is kept, and it has no number."""
        period = Period(request.query_params.get("period", ""))
        draft = invoice_draft(actor=self.actor(), organization_id=organization_id, period=period)
        return Response(draft_json(draft))


class OneInvoice(MoneyView):
    """`GET invoices/<id>`: one document with its lines."""

    @operation(answer=WholeInvoiceJson)
    def get(self, request: Request, organization_id: uuid.UUID, invoice_id: uuid.UUID) -> Response:
        """As it was issued; paid and open are as of today."""
        return Response(_whole(self, organization_id, invoice_id))


class InvoiceFile(MoneyView):
    """`GET invoices/<id>.pdf | .csv`: the document as a file, the same bytes each time."""

    @extend_schema(
        responses={(200, kind): OpenApiTypes.BINARY for kind in ("application/pdf", "text/csv")}
    )
    def get(
        self, request: Request, organization_id: uuid.UUID, invoice_id: uuid.UUID, form: str
    ) -> HttpResponse:
        """`raw=1` leaves the guard against formulas out of a CSV file."""
        document = invoice_get(
            actor=self.actor(), organization_id=organization_id, invoice_id=invoice_id
        )
        return file_answer(document, form, raw=request.query_params.get("raw") == "1")


class CreditNotes(MoneyView):
    """`POST invoices/<id>/credit-notes`: give back an invoice or parts of its lines; for staff."""

    step_up_methods = frozenset({"POST"})

    @operation(
        body=CreditBody,
        answer={CREATED: WholeInvoiceJson, WAITS: GrantJson},
        example={"reason": "wrong model", "lines": [{"position": 1, "amount_nano": 5_000_000}]},
    )
    def post(self, request: Request, organization_id: uuid.UUID, invoice_id: uuid.UUID) -> Response:
        """Never more than is left; 202 with the grant where it takes a second person."""
        require(self.actor(), Action.CREDIT_GRANT)
        wanted = self.body(CreditBody)
        invoice = invoice_get(
            actor=self.actor(), organization_id=organization_id, invoice_id=invoice_id
        )
        amounts = None
        if wanted.lines is not None:
            amounts = {line.position: line.amount_nano for line in wanted.lines}
        made = credit_note_issue(
            actor=self.actor(),
            invoice=invoice,
            reason=wanted.reason,
            amounts_nano=amounts,
            form=wanted.id,
        )
        if isinstance(made, WalletGrant):
            return Response(grant_json(made), status=WAITS)
        return Response(_whole(self, organization_id, made.id), status=CREATED)


class InvoicePayments(MoneyView):
    """`POST invoices/<id>/payments`: record a bank transfer that arrived; for staff."""

    step_up_methods = frozenset({"POST"})

    @operation(body=PaymentBody, answer={CREATED: PaymentJson, WAITS: GrantJson})
    def post(self, request: Request, organization_id: uuid.UUID, invoice_id: uuid.UUID) -> Response:
        """Each reference counts once; 202 with the grant where it takes a second person."""
        require(self.actor(), Action.CREDIT_GRANT)
        wanted = self.body(PaymentBody)
        invoice = invoice_get(
            actor=self.actor(), organization_id=organization_id, invoice_id=invoice_id
        )
        made = payment_record(
            actor=self.actor(),
            invoice=invoice,
            amount_cents=wanted.amount_cents,
            reference=wanted.reference,
        )
        if isinstance(made, WalletGrant):
            return Response(grant_json(made), status=WAITS)
        return Response(payment_json(made), status=CREATED)


class OrganizationStanding(MoneyView):
    """`GET standing`: what is owed, and how late it is."""

    @operation(answer=StandingJson)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Nothing is suspended by it: that is for people to decide."""
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
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Documents that were issued keep what they say."""
        found = billing_profile(actor=self.actor(), organization_id=organization_id)
        return Response(profile_json(found))

    @operation(body=ProfileBody, answer=ProfileJson)
    def put(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Replaces all of it; terms and tax change only by the word of staff."""
        wanted = ProfileDraft(**msgspec.structs.asdict(self.body(ProfileBody)))
        made = billing_profile_set(
            actor=self.actor(), organization_id=organization_id, draft=wanted
        )
        return Response(profile_json(made))


def file_answer(document: Invoice, form: str, *, raw: bool = False) -> HttpResponse:
    """A document as a download."""
    body = invoice_pdf(document) if form == "pdf" else invoice_csv(document, raw=raw)
    name = f"{document.title}.{form}"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, no-cache",
    }
    return HttpResponse(body, content_type=FILES[form], headers=headers)


def _whole(view: ApiView, organization_id: uuid.UUID, invoice_id: uuid.UUID) -> WholeInvoiceJson:
    return whole_json(actor=view.actor(), organization_id=organization_id, invoice_id=invoice_id)
