"""Invoices: the documents of an organization, one of them, its files, and what is done to it."""

from datetime import UTC, datetime
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from controlplane.billing.approvals.models import GrantState, WalletGrant
from controlplane.billing.documents import profiles
from controlplane.billing.documents.lines import NANO_PER_CENT, LineKind, lines_read
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.billing.documents.text import TITLES, due_words, tax_words
from controlplane.billing.invoices.api import FILES, file_answer
from controlplane.billing.invoices.selectors import invoice_found, invoice_list
from controlplane.billing.invoices.services import invoice_draft, invoice_issue
from controlplane.billing.months.periods import Period, period_of, periods_back
from controlplane.billing.payments.dunning import Standing, worst
from controlplane.billing.payments.selectors import credit_cents, open_invoices
from controlplane.billing.payments.services import payment_order_create, payment_record
from controlplane.billing.reversals.credit_notes import credit_note_issue
from controlplane.core.models import uuid7
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from frontend.payments.wallet_views import NO_LINK, cents_of, id_of, pay_page
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import changes, cleaned, nano_of, page_asked, says_wrong
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


@page("invoices", Action.LEDGER_VIEW, "GET")
def invoices(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    organization = viewer.organization.id
    found = invoice_list(**viewer.whose, ask=page_asked(request, "inv"))
    still_open = open_invoices(**viewer.whose)
    months = _ended_months(organization)
    issued = {one.invoice.period for one in found.rows}
    context = {
        "standings": found.rows,
        "next": public_id("inv", found.rows[-1].invoice.id) if found.has_more else None,
        "stage": worst(still_open),
        "open_nano": sum(one.open_cents for one in still_open) * NANO_PER_CENT,
        "open_count": len(still_open),
        "credit_nano": NANO_PER_CENT * credit_cents(**viewer.whose),
        "this_month": period_of(datetime.now(UTC)).name,
        "months": [(month, month) for month in months if month not in issued],
        "profile": profiles.billing_profile(**viewer.whose),
        "issues": viewer.may(Action.INVOICE_ISSUE),
        "grants": viewer.may(Action.CREDIT_GRANT),
    }
    return show(request, viewer, "invoices", "payments/invoices.html", context)


@page("invoices/preview", Action.LEDGER_VIEW, "GET")
def invoice_preview(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """What a month would be invoiced for as it stands now, or its file; nothing is kept."""
    try:
        period = Period(request.GET.get("period", ""))
        draft = invoice_draft(**viewer.whose, period=period)
    except ValidationError as error:
        raise Http404 from error
    if (form := request.GET.get("form")) in FILES:
        return file_answer(draft, form)
    return _document(request, viewer, Standing(draft, 0, 0, draft.issued_on))


@page("invoices/<inv:invoice_id>", Action.LEDGER_VIEW, "GET", name="invoice")
def invoice_detail(request: HttpRequest, viewer: Viewer, invoice_id: UUID) -> HttpResponse:
    found = invoice_found(**viewer.whose, invoice_id=invoice_id)
    more = {"notes": found.notes, "payments": found.payments, "form_id": uuid7().hex}
    return _document(request, viewer, found.standing, **more)


@page("invoices/<inv:invoice_id>.<slug:form>", Action.LEDGER_VIEW, "GET")
def invoice_file(request: HttpRequest, viewer: Viewer, invoice_id: UUID, form: str) -> HttpResponse:
    if form not in FILES:
        raise Http404
    return file_answer(_mine(viewer, invoice_id), form)


@changes("invoices/issue", Action.INVOICE_ISSUE, "invoices", confirmed=True)
def invoice_make(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    made = invoice_issue(
        **viewer.whose,
        period=Period(request.POST.get("period", "")),
    )
    messages.success(request, f"{made.title} is issued for {made.period}.")
    return redirect("invoice", invoice_id=made.id)


@page("invoices/<inv:invoice_id>/credit", Action.CREDIT_GRANT, "POST")
@stepped_up
@says_wrong("invoice", "invoice_id")
def invoice_credit(request: HttpRequest, viewer: Viewer, invoice_id: UUID) -> HttpResponse:
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


@page("invoices/<inv:invoice_id>/paid", Action.CREDIT_GRANT, "POST")
@stepped_up
@says_wrong("invoice", "invoice_id")
def invoice_paid(request: HttpRequest, viewer: Viewer, invoice_id: UUID) -> HttpResponse:
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
        messages.success(request, f"The payment of {invoice.title} is recorded.")
    return redirect("invoice", invoice_id=invoice.id)


@changes("invoices/<inv:invoice_id>/pay", Action.INVOICE_ISSUE, "invoice", "invoice_id")
def invoice_pay(request: HttpRequest, viewer: Viewer, invoice_id: UUID) -> HttpResponse:
    """Go where the open amount can be paid."""
    invoice = _mine(viewer, invoice_id)
    if not settings.STRIPE_LINK:
        raise ValidationError({"payment": NO_LINK})
    order = payment_order_create(**viewer.whose, invoice=invoice)
    return pay_page(request, order)


@changes("invoices/profile", Action.INVOICE_ISSUE, "invoices", confirmed=True)
def invoice_profile(request: HttpRequest, viewer: Viewer) -> str:
    """Set to whom documents go; terms and tax stay as they are unless staff send them."""
    known = profiles.billing_profile(**viewer.whose)
    values = cleaned(ProfileForm(request.POST))
    if not viewer.may(Action.CREDIT_GRANT):
        for field in ("terms_days", "tax_basis_points", "tax_jurisdiction"):
            values[field] = getattr(known, field)
    values["tax_basis_points"] = values["tax_basis_points"] or 0
    profiles.billing_profile_set(**viewer.whose, draft=profiles.ProfileDraft(**values))
    return "Documents issued from now on go to this address."


def _mine(viewer: Viewer, invoice_id: UUID) -> Invoice:
    return profiles.invoice_get(**viewer.whose, invoice_id=invoice_id)


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


def _ended_months(organization: UUID) -> list[str]:
    """The newest months that are over and can have charges, newest first."""
    return [one.name for one in periods_back(organization, MONTHS_SHOWN + 1)[1:]]
