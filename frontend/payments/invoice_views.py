"""Invoices: the documents of an organization, one of them, its files, and what is done to it."""

import uuid
from datetime import UTC, datetime

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_POST

from controlplane.billing.approvals.models import GrantState, WalletGrant
from controlplane.billing.documents.lines import NANO_PER_CENT, LineKind, lines_read
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.billing.documents.profiles import ProfileDraft, billing_profile_set
from controlplane.billing.documents.selectors import billing_profile, invoice_get
from controlplane.billing.documents.text import TITLES, due_words, tax_words
from controlplane.billing.invoices.api import FILES, file_answer
from controlplane.billing.invoices.drafts import invoice_draft
from controlplane.billing.invoices.selectors import invoice_found, invoice_list
from controlplane.billing.invoices.services import invoice_issue
from controlplane.billing.months.periods import Period, first_period, period_of
from controlplane.billing.payments.dunning import Standing, worst
from controlplane.billing.payments.selectors import credit_cents, open_invoices
from controlplane.billing.payments.services import payment_order_create, payment_record
from controlplane.billing.reversals.credit_notes import credit_note_issue
from controlplane.core.models import uuid7
from controlplane.core.paging import page_ask
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from frontend.payments.forms import NO_LINK, cents_of, id_of, pay_page
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import cleaned, nano_of, says_wrong
from frontend.shared.stepup import stepped_up

MONTHS_SHOWN = 12
WAITS = "It is pending approval by another person on the Top-ups page."


class ProfileForm(forms.Form):
    """To whom documents go; the service checks everything again."""

    name = forms.CharField(required=False)
    address = forms.CharField(required=False)
    tax_id = forms.CharField(required=False)
    email = forms.CharField(required=False)
    terms_days = forms.IntegerField(required=False)
    tax_basis_points = forms.IntegerField(required=False)
    tax_jurisdiction = forms.CharField(required=False)


@page(Action.LEDGER_VIEW)
@require_GET
def invoice_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    organization = viewer.organization.id
    try:
        ask = page_ask(request.GET.dict(), "inv")
    except ValidationError as error:
        raise Http404 from error
    found = invoice_list(actor=viewer.user, organization_id=organization, ask=ask)
    still_open = open_invoices(actor=viewer.user, organization_id=organization)
    months = _ended_months(organization)
    issued = {one.invoice.period for one in found.rows}
    context = {
        "standings": found.rows,
        "next": public_id("inv", found.rows[-1].invoice.id) if found.has_more else None,
        "stage": worst(still_open),
        "open_nano": sum(one.open_cents for one in still_open) * NANO_PER_CENT,
        "open_count": len(still_open),
        "credit_nano": NANO_PER_CENT
        * credit_cents(actor=viewer.user, organization_id=organization),
        "this_month": period_of(datetime.now(UTC)).name,
        "months": [month for month in months if month not in issued],
        "profile": billing_profile(actor=viewer.user, organization_id=organization),
        "issues": viewer.may(Action.INVOICE_ISSUE),
        "grants": viewer.may(Action.CREDIT_GRANT),
    }
    return show(request, viewer, "invoices", "payments/invoices.html", context)


@page(Action.LEDGER_VIEW)
@require_GET
def invoice_preview(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """What a month would be invoiced for as it stands now; nothing is kept."""
    try:
        period = Period(request.GET.get("period", ""))
        draft = invoice_draft(
            actor=viewer.user, organization_id=viewer.organization.id, period=period
        )
    except ValidationError as error:
        raise Http404 from error
    return _document(request, viewer, Standing(draft, 0, 0, draft.issued_on))


@page(Action.LEDGER_VIEW)
@require_GET
def invoice_detail(request: HttpRequest, viewer: Viewer, invoice_id: uuid.UUID) -> HttpResponse:
    found = invoice_found(
        actor=viewer.user, organization_id=viewer.organization.id, invoice_id=invoice_id
    )
    more = {"notes": found.notes, "payments": found.payments, "form_id": uuid7().hex}
    return _document(request, viewer, found.standing, **more)


@page(Action.LEDGER_VIEW)
@require_GET
def invoice_file(
    request: HttpRequest, viewer: Viewer, invoice_id: uuid.UUID, form: str
) -> HttpResponse:
    if form not in FILES:
        raise Http404
    return file_answer(_mine(viewer, invoice_id), form)


@page(Action.INVOICE_ISSUE)
@stepped_up
@require_POST
@says_wrong("invoices")
def invoice_make(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    made = invoice_issue(
        actor=viewer.user,
        organization_id=viewer.organization.id,
        period=Period(request.POST.get("period", "")),
    )
    messages.success(request, f"{made.title} is issued for {made.period}.")
    return redirect("invoice", invoice_id=made.id)


@page(Action.CREDIT_GRANT)
@stepped_up
@require_POST
@says_wrong("invoice", "invoice_id")
def invoice_credit(request: HttpRequest, viewer: Viewer, invoice_id: uuid.UUID) -> HttpResponse:
    """Give back an invoice, whole or one line of it."""
    invoice = _mine(viewer, invoice_id)
    amounts = None
    if request.POST.get("line"):
        position = int(request.POST["line"]) if request.POST["line"].isdecimal() else 0
        amounts = {position: nano_of(request.POST.get("amount", ""), "amount")}
    made = credit_note_issue(
        actor=viewer.user,
        invoice=invoice,
        reason=request.POST.get("reason", ""),
        amounts_nano=amounts,
        form=id_of(request.POST.get("form_id", ""), "form"),
    )
    if isinstance(made, WalletGrant):
        waits = made.state == GrantState.PENDING
        messages.info(
            request, WAITS if waits else "This form was already submitted: credited once."
        )
        return redirect("invoice", invoice_id=invoice.id)
    messages.success(request, f"{made.title} credits part or all of {invoice.title}.")
    return redirect("invoice", invoice_id=made.id)


@page(Action.CREDIT_GRANT)
@stepped_up
@require_POST
@says_wrong("invoice", "invoice_id")
def invoice_paid(request: HttpRequest, viewer: Viewer, invoice_id: uuid.UUID) -> HttpResponse:
    invoice = _mine(viewer, invoice_id)
    made = payment_record(
        actor=viewer.user,
        invoice=invoice,
        amount_cents=cents_of(request.POST.get("amount", ""), "amount"),
        reference=request.POST.get("reference", ""),
    )
    if isinstance(made, WalletGrant):
        messages.info(request, WAITS)
    else:
        messages.success(request, f"The payment of {invoice.title} is booked.")
    return redirect("invoice", invoice_id=invoice.id)


@page(Action.INVOICE_ISSUE)
@require_POST
@says_wrong("invoice", "invoice_id")
def invoice_pay(request: HttpRequest, viewer: Viewer, invoice_id: uuid.UUID) -> HttpResponse:
    """Go where the open amount can be paid."""
    invoice = _mine(viewer, invoice_id)
    if not settings.STRIPE_LINK:
        raise ValidationError({"payment": NO_LINK})
    order = payment_order_create(
        actor=viewer.user, organization_id=viewer.organization.id, invoice=invoice
    )
    return pay_page(request, order)


@page(Action.INVOICE_ISSUE)
@stepped_up
@require_POST
@says_wrong("invoices")
def invoice_profile(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Set to whom documents go; terms and tax stay as they are unless staff send them."""
    organization = viewer.organization.id
    known = billing_profile(actor=viewer.user, organization_id=organization)
    values = cleaned(ProfileForm(request.POST))
    if not viewer.may(Action.CREDIT_GRANT):
        for field in ("terms_days", "tax_basis_points", "tax_jurisdiction"):
            values[field] = getattr(known, field)
    values["tax_basis_points"] = values["tax_basis_points"] or 0
    billing_profile_set(
        actor=viewer.user, organization_id=organization, draft=ProfileDraft(**values)
    )
    messages.success(request, "Documents issued from now on go to this address.")
    return redirect("invoices")


def _mine(viewer: Viewer, invoice_id: uuid.UUID) -> Invoice:
    return invoice_get(
        actor=viewer.user, organization_id=viewer.organization.id, invoice_id=invoice_id
    )


def _document(
    request: HttpRequest, viewer: Viewer, standing: Standing, **more: object
) -> HttpResponse:
    document = standing.invoice
    lines = lines_read(document.lines)
    context = {
        "standing": standing,
        "document": document,
        "title": TITLES[DocumentKind(document.kind)],
        "usage": [line for line in lines if line.kind == LineKind.USAGE],
        "others": [line for line in lines if line.kind != LineKind.USAGE],
        "tax_words": tax_words(document),
        "due": due_words(document),
        "ended": document.period in _ended_months(viewer.organization.id),
        "issues": viewer.may(Action.INVOICE_ISSUE),
        "grants": viewer.may(Action.CREDIT_GRANT) and document.number,
        "pays": bool(settings.STRIPE_LINK) and viewer.may(Action.INVOICE_ISSUE),
        **more,
    }
    return show(request, viewer, "invoices", "payments/invoice.html", context)


def _ended_months(organization: uuid.UUID) -> list[str]:
    """The newest months that are over and can have charges, newest first."""
    first, month = first_period(organization), period_of(datetime.now(UTC)).before
    found: list[str] = []
    while len(found) < MONTHS_SHOWN and month >= first:
        found.append(month.name)
        month = month.before
    return found
