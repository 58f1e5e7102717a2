"""Wallet: what a prepaid organization has left; and grants, which staff give, large ones by two."""

import uuid

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.forms.utils import ErrorList
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from controlplane.billing.approvals import models
from controlplane.billing.approvals.selectors import grant_get, grant_list, grants_pending
from controlplane.billing.budgets.selectors import budget_list
from controlplane.billing.decisions.services import DECISIONS
from controlplane.billing.documents.lines import NANO_PER_CENT
from controlplane.billing.documents.text import cents_text
from controlplane.billing.ledger import accounts
from controlplane.billing.payments.api import pay_url
from controlplane.billing.payments.models import PaymentOrder
from controlplane.billing.payments.services import payment_order_create
from controlplane.billing.wallets.selectors import wallet_entries, wallet_get
from controlplane.billing.wallets.services import Gift, wallet_grant
from controlplane.core.models import uuid7
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id, uuid_asked
from controlplane.kernel.money import usd_text
from controlplane.tenants.selectors import organization_names
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import changes, nano_of, page_asked, says_wrong
from frontend.shared.stepup import stepped_up

NO_LINK = "Online payment is not set up. Contact the operator of this installation."


def cents_of(text: str, field: str) -> int:
    """Cents of `1234.50`; raises ValidationError where there are parts of a cent."""
    nano = nano_of(text, field)
    if nano % NANO_PER_CENT:
        raise ValidationError({field: "Must be whole cents."})
    return nano // NANO_PER_CENT


def pay_page(request: HttpRequest, order: PaymentOrder) -> HttpResponse:
    """Where the order can be paid: a link, since forms may not lead away from here."""
    context = {
        "title": f"Pay USD {cents_text(order.amount_cents)}",
        "text": "Pay exactly this amount so that it can be matched. It appears here within a "
        "minute.",
        "link": pay_url(order),
        "link_text": "Go to the payment page",
    }
    return render(request, "shared/notice.html", context)


def id_of(text: str, field: str) -> uuid.UUID:
    """An id that a form has carried; raises ValidationError for the field."""
    wrong = ValidationError({field: "This form has expired; submit it again."})
    return uuid_asked(text, "", wrong)


@page("wallet", Action.LEDGER_VIEW, "GET")
def wallet(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Balance, what moved it other than requests, and what waits for approval."""
    organization = viewer.organization.id
    entries = wallet_entries(**viewer.whose, ask=page_asked(request, "entry"))
    recent = grant_list(**viewer.whose).rows
    budgets = budget_list(actor=viewer.user, organization=organization)
    context = {
        "wallet": wallet_get(**viewer.whose),
        "budget": next((one for one in budgets if one.scope == "organization"), None),
        "account": accounts.wallet(organization),
        "entries": entries.rows,
        "next": public_id("entry", entries.rows[-1].id) if entries.has_more else None,
        "pending": [grant for grant in recent if grant.state == models.GrantState.PENDING],
        "pays": bool(settings.STRIPE_LINK) and viewer.may(Action.INVOICE_ISSUE),
        "grants": viewer.may(Action.CREDIT_GRANT),
    }
    return show(request, viewer, "wallet", "payments/wallet.html", context)


@changes("wallet/pay", Action.INVOICE_ISSUE, "wallet")
def wallet_pay(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    if not settings.STRIPE_LINK:
        raise ValidationError({"payment": NO_LINK})
    order = payment_order_create(
        **viewer.whose,
        amount_cents=cents_of(request.POST.get("amount", ""), "amount"),
        becomes_prepaid="becomes_prepaid" in request.POST,
    )
    return pay_page(request, order)


@page("grants", Action.CREDIT_GRANT, "GET", name="grants")
def grant_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """What waits for a second person in all organizations, and the form for a new grant."""
    return _grants(request, viewer, {})


def _grants(
    request: HttpRequest, viewer: Viewer, wrong: dict[str, list[str]], **more: object
) -> HttpResponse:
    """The page, with what was typed where something of it is wrong or looked at once more."""
    names = organization_names(actor=viewer.user)
    pending = grants_pending(actor=viewer.user)
    context = {
        "pending": [
            (grant, names.get(grant.organization, ""), grant.asked_by == viewer.user.id)
            for grant in pending
        ],
        "organizations": sorted(
            ((str(key), name) for key, name in names.items()), key=lambda pair: pair[1].casefold()
        ),
        "given": request.POST,
        "wrong": {name: ErrorList(told) for name, told in wrong.items()},
        "kinds": [(kind.value, kind.label) for kind in models.WALLET_KINDS],
        "form_id": request.POST.get("form_id") or uuid7().hex,
        "alone_usd": settings.GRANT_ALONE_USD,
        "reason_chars_max": models.REASON_CHARS_MAX,
        "look": request.POST.get("looked"),
        **more,
    }
    return show(request, viewer, "grants", "payments/grants.html", context, wrong)


@page("grants/new", Action.CREDIT_GRANT, "POST")
@stepped_up
def grant_make(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Give, or ask for a second person, once the sender has seen what to whom."""
    try:
        organization = id_of(request.POST.get("organization", ""), "organization")
        gift = Gift(
            kind=_kind(request.POST.get("kind", "")),
            amount_nano=nano_of(request.POST.get("amount", ""), "amount"),
            reason=request.POST.get("reason", ""),
        )
        look = f"{organization} {gift.amount_nano} {gift.kind}"
        if request.POST.get("looked") != look:
            return _grants(request, viewer, {}, look=look, gift=gift)
        made = wallet_grant(
            actor=viewer.user,
            organization_id=organization,
            gift=gift,
            form=id_of(request.POST.get("form_id", ""), "form"),
            becomes_prepaid="becomes_prepaid" in request.POST,
        )
    except ValidationError as error:
        return _grants(request, viewer, error.message_dict)
    amount = f"{made.get_kind_display()} of ${usd_text(made.amount_nano)}"
    name = organization_names(actor=viewer.user, ids=[organization])[organization]
    if made.state == models.GrantState.PENDING:
        messages.info(request, f"{amount} for {name}: another person must approve it.")
    else:
        messages.success(request, f"{amount} added for {name}.")
    return redirect("grants")


@page("grants/<org:organization_id>/<grant:grant_id>/<slug:decision>", Action.CREDIT_GRANT, "POST")
@stepped_up
@says_wrong("grants")
def grant_decide(
    request: HttpRequest,
    viewer: Viewer,
    organization_id: uuid.UUID,
    grant_id: uuid.UUID,
    decision: str,
) -> str:
    if decision not in DECISIONS:
        raise Http404
    grant = grant_get(actor=viewer.user, organization_id=organization_id, grant_id=grant_id)
    made = DECISIONS[decision](actor=viewer.user, grant=grant)
    booked = made.state == models.GrantState.BOOKED
    return "Approved; the funds are added." if booked else "Refused; no funds are added."


def _kind(text: str) -> models.GrantKind:
    if text not in models.WALLET_KINDS:
        raise ValidationError({"kind": "Choose a top-up or a credit."})
    return models.GrantKind(text)
