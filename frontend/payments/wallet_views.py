"""Wallet: what a prepaid organization has left; and grants, which staff give, large ones by two."""

import uuid
from collections.abc import Callable

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_POST

from controlplane.billing.approvals.models import (
    REASON_CHARS_MAX,
    WALLET_KINDS,
    GrantKind,
    GrantState,
    WalletGrant,
)
from controlplane.billing.approvals.selectors import grant_get, grant_list, grants_pending
from controlplane.billing.decisions.services import grant_approve, grant_refuse
from controlplane.billing.ledger import accounts
from controlplane.billing.payments.services import payment_order_create
from controlplane.billing.wallets.selectors import wallet_entries, wallet_get
from controlplane.billing.wallets.services import Gift, wallet_grant
from controlplane.core.models import uuid7
from controlplane.core.paging import page_ask
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import usd_text
from controlplane.tenants.selectors_staff import organization_names
from frontend.payments.forms import NO_LINK, cents_of, id_of, pay_page
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import nano_of, says_wrong
from frontend.shared.stepup import stepped_up

DECISIONS: dict[str, Callable[..., WalletGrant]] = {
    "approve": grant_approve,
    "refuse": grant_refuse,
}


@page(Action.LEDGER_VIEW)
@require_GET
def wallet(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Balance, what moved it other than requests, and what waits for approval."""
    organization = viewer.organization.id
    try:
        ask = page_ask(request.GET.dict(), "entry")
    except ValidationError as error:
        raise Http404 from error
    entries = wallet_entries(actor=viewer.user, organization_id=organization, ask=ask)
    recent = grant_list(actor=viewer.user, organization_id=organization).rows
    context = {
        "wallet": wallet_get(actor=viewer.user, organization_id=organization),
        "account": accounts.wallet(organization),
        "entries": entries.rows,
        "next": public_id("entry", entries.rows[-1].id) if entries.has_more else None,
        "pending": [grant for grant in recent if grant.state == GrantState.PENDING],
        "pays": bool(settings.STRIPE_LINK) and viewer.may(Action.INVOICE_ISSUE),
        "grants": viewer.may(Action.CREDIT_GRANT),
    }
    return show(request, viewer, "wallet", "payments/wallet.html", context)


@page(Action.INVOICE_ISSUE)
@require_POST
@says_wrong("wallet")
def wallet_pay(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    if not settings.STRIPE_LINK:
        raise ValidationError({"payment": NO_LINK})
    order = payment_order_create(
        actor=viewer.user,
        organization_id=viewer.organization.id,
        amount_cents=cents_of(request.POST.get("amount", ""), "amount"),
        becomes_prepaid="becomes_prepaid" in request.POST,
    )
    return pay_page(request, order)


@page(Action.CREDIT_GRANT)
@require_GET
def grant_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """What waits for a second person in all organizations, and the form for a new grant."""
    return _grants(request, viewer, {})


def _grants(request: HttpRequest, viewer: Viewer, wrong: dict[str, list[str]]) -> HttpResponse:
    """The page, with what was typed where something of it is wrong."""
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
        "wrong": wrong,
        "kinds": [(kind.value, kind.label) for kind in WALLET_KINDS],
        "form_id": request.POST.get("form_id") or uuid7().hex,
        "alone_usd": settings.GRANT_ALONE_USD,
        "reason_chars_max": REASON_CHARS_MAX,
    }
    return show(request, viewer, "grants", "payments/grants.html", context, wrong)


@page(Action.CREDIT_GRANT)
@stepped_up
@require_POST
def grant_make(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Give, or ask for a second person."""
    try:
        organization = id_of(request.POST.get("organization", ""), "organization")
        made = wallet_grant(
            actor=viewer.user,
            organization_id=organization,
            gift=Gift(
                kind=_kind(request.POST.get("kind", "")),
                amount_nano=nano_of(request.POST.get("amount", ""), "amount"),
                reason=request.POST.get("reason", ""),
            ),
            form=id_of(request.POST.get("form_id", ""), "form"),
            becomes_prepaid="becomes_prepaid" in request.POST,
        )
    except ValidationError as error:
        return _grants(request, viewer, error.message_dict)
    amount = f"{made.get_kind_display()} of ${usd_text(made.amount_nano)}"
    name = organization_names(actor=viewer.user, ids=[organization])[organization]
    if made.state == GrantState.PENDING:
        messages.info(request, f"{amount} for {name}: another person must approve it.")
    else:
        messages.success(request, f"{amount} added for {name}.")
    return redirect("grants")


@page(Action.CREDIT_GRANT)
@stepped_up
@require_POST
@says_wrong("grants")
def grant_decide(
    request: HttpRequest,
    viewer: Viewer,
    organization_id: uuid.UUID,
    grant_id: uuid.UUID,
    decision: str,
) -> HttpResponse:
    if decision not in DECISIONS:
        raise Http404
    grant = grant_get(actor=viewer.user, organization_id=organization_id, grant_id=grant_id)
    made = DECISIONS[decision](actor=viewer.user, grant=grant)
    words = "booked" if made.state == GrantState.BOOKED else "refused; no funds were added"
    messages.success(request, f"It is {words}.")
    return redirect("grants")


def _kind(text: str) -> GrantKind:
    if text not in WALLET_KINDS:
        raise ValidationError({"kind": "Choose a top-up or a credit."})
    return GrantKind(text)
