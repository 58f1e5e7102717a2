"""Organizations: all of them for staff, a new one, and a way in for an owner."""

import uuid

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from controlplane.composed.organizations.selectors import PaymentState, organization_rows
from controlplane.composed.organizations.services import FIRST_BUDGET_NANO, organization_open
from controlplane.core.answers import page_ask
from controlplane.core.mail import mail_send
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import NANO_PER_USD
from controlplane.tenants.models import NAME_CHARS_MAX
from controlplane.tenants.sign_in.recovery import member_for_link, member_link_create
from frontend.shared.access import Viewer, page, show
from frontend.shared.addresses import page_url
from frontend.shared.forms import nano_of, says_wrong
from frontend.shared.stepup import secret_page

HERE = "organizations"
STATE_WORDS = {
    PaymentState.ACTIVE: ("ok", "active"),
    PaymentState.WALLET_EMPTY: ("bad", "no balance left"),
    PaymentState.BUDGET_SPENT: ("bad", "budget used up"),
}


def _index(request: HttpRequest, viewer: Viewer, **shown_once: object) -> HttpResponse:
    asked = page_ask({"after": request.GET["after"]} if "after" in request.GET else {}, "org")
    found = organization_rows(actor=viewer.user, now=timezone.now(), ask=asked)
    context = {
        "rows": [(row, *STATE_WORDS[row.state]) for row in found.rows],
        "next": public_id("org", found.rows[-1].organization.id) if found.has_more else None,
        "name_chars_max": NAME_CHARS_MAX,
        "budget_usd": FIRST_BUDGET_NANO // NANO_PER_USD,
        **shown_once,
    }
    return show(request, viewer, HERE, "people/organizations.html", context)


@page("organizations", Action.ORGANIZATION_CREATE, "GET")
def organizations(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    try:
        return _index(request, viewer)
    except ValidationError:
        return redirect(HERE)


@secret_page("organizations/new", Action.ORGANIZATION_CREATE, "POST")
@says_wrong(HERE)
def organization_new(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Make one; a link for an owner without a password is in this one answer."""
    made = organization_open(
        actor=viewer.user,
        name=request.POST.get("name", ""),
        owner=request.POST.get("owner", ""),
        budget_nano=nano_of(request.POST.get("budget", ""), "budget"),
    )
    name, email = made.organization.name, made.owner.email
    if made.token is None:
        return _index(request, viewer, made=name, owner=email)
    return _linked(request, viewer, email, made.token, made=name)


@secret_page("organizations/<org:organization_id>/links/<user:user_id>", Action.USER_CREATE, "POST")
def organization_link(
    request: HttpRequest, viewer: Viewer, organization_id: uuid.UUID, user_id: uuid.UUID
) -> HttpResponse:
    """Make a link that sets an owner's password, and show it in this one answer."""
    found = member_for_link(actor=viewer.user, organization_id=organization_id, user_id=user_id)
    token = member_link_create(actor=viewer.user, membership=found)
    return _linked(request, viewer, found.user.email, token)


def _linked(
    request: HttpRequest, viewer: Viewer, email: str, token: str, made: str = ""
) -> HttpResponse:
    link = f"{page_url(request)}{reverse('setup', args=[token])}"
    text = f"Set your password for Sluice:\n\n{link}\n\nThe link works once, within a day.\n"
    mailed = mail_send(to=[email], subject="Your account on Sluice", text=text)
    return _index(request, viewer, made=made, owner=email, link=link, mailed=mailed)
