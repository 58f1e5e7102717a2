"""Members: who is in the organization and as what, invitations, and the page that accepts one."""

import uuid

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.core.mail import mail_send
from controlplane.core.permissions import GRANTABLE, Action, Role
from controlplane.tenants.access import role_of
from controlplane.tenants.models import Invitation, User
from controlplane.tenants.people import services
from controlplane.tenants.people.selectors import member_get, member_list
from controlplane.tenants.sign_in.accounts import user_find
from controlplane.tenants.sign_in.factors import second_factor_require
from controlplane.tenants.sign_in.recovery import member_link_create
from frontend.people.sign_in_views import PasswordForm
from frontend.people.signing import first_shown
from frontend.shared.access import SESSION_KEY, Viewer, notice, page, show
from frontend.shared.addresses import page_url
from frontend.shared.forms import changes, made_by
from frontend.shared.stepup import secret_page, unseen

HERE = "members"
ROLE_WORDS = {
    Role.OWNER: "everything, including owners",
    Role.ADMIN: "everything except owners",
    Role.DEVELOPER: "keys, playground, requests",
    Role.FINANCE: "ledger, budgets, invoices, exports",
    Role.VIEWER: "read-only",
}


class InviteForm(forms.Form):
    """Whom, as what; roles are those that the viewer may give."""

    email = forms.EmailField()
    role = forms.ChoiceField()

    def __init__(self, roles: list[tuple[str, str]], data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        self.fields["role"] = forms.ChoiceField(choices=roles, initial=Role.DEVELOPER.value)


def _roles(viewer: Viewer) -> list[tuple[str, str]]:
    own = role_of(viewer.user, viewer.organization.id)
    allowed = GRANTABLE[own] if own else frozenset()
    return [(role.value, f"{role.title()}: {ROLE_WORDS[role]}") for role in Role if role in allowed]


def _index(
    request: HttpRequest, viewer: Viewer, /, form: InviteForm | None = None, **shown_once: object
) -> HttpResponse:
    roles, now, organization = _roles(viewer), timezone.now(), viewer.organization.id
    form = form or InviteForm(roles)
    invited = services.invitation_list(actor=viewer.user, organization_id=organization)
    context = {
        "members": member_list(actor=viewer.user, organization_id=organization),
        "invitations": [(row, row.state(now)) for row in invited],
        "roles": roles,
        "secures": viewer.may(Action.SECURITY_SET),
        "givable": {role for role, _ in roles},
        "form": form,
        **shown_once,
    }
    return show(request, viewer, HERE, "people/members.html", context, form.errors)


page("members", Action.MEMBER_VIEW, "GET", name=HERE)(_index)


@changes("members/second-factor", Action.SECURITY_SET, HERE, confirmed=True)
def members_second_factor(request: HttpRequest, viewer: Viewer) -> str:
    required = request.POST.get("required") == "on"
    second_factor_require(**viewer.whose, required=required)
    words = "must have a" if required else "no longer need a"
    return f"Members {words} second factor."


@secret_page("members/invite", Action.MEMBER_MANAGE, "GET", "POST")
def invite(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    if request.method == "GET":
        return redirect(HERE)
    form = InviteForm(_roles(viewer), request.POST)
    made = made_by(
        form,
        lambda: services.invitation_create(
            actor=viewer.user,
            organization=viewer.organization,
            email=form.cleaned_data["email"],
            role=Role(form.cleaned_data["role"]),
        ),
    )
    if made is None:
        return _index(request, viewer, form)
    invited, token = made
    link = f"{page_url(request)}{reverse('invitation', args=[token])}"
    return _index(request, viewer, link=link, mailed=_mail(invited, viewer, link))


def _mail(made: Invitation, viewer: Viewer, link: str) -> bool:
    name = viewer.organization.name
    text = (
        f"{viewer.user.email} invites you to {name} on Sluice.\n\n{link}\n\n"
        "The link works once, within seven days, and only for this address.\n"
    )
    return mail_send(to=[made.email], subject=f"Invitation to {name}", text=text)


@changes("members/<user:user_id>/role", Action.MEMBER_MANAGE, HERE, confirmed=True)
def member_role(request: HttpRequest, viewer: Viewer, user_id: uuid.UUID) -> str:
    found = member_get(**viewer.whose, user_id=user_id)
    given = request.POST.get("role", "")
    if given not in set(Role):
        raise ValidationError({"role": "Choose one of the list."})
    services.membership_set(
        actor=viewer.user, organization=viewer.organization, user=found.user, role=Role(given)
    )
    return f"{found.user.email} now has the role {given}."


@secret_page("members/<user:user_id>/link", Action.MEMBER_RECOVER, "POST")
def member_link(request: HttpRequest, viewer: Viewer, user_id: uuid.UUID) -> HttpResponse:
    """Make a link that sets a member's password, and show it in this one answer."""
    found = member_get(**viewer.whose, user_id=user_id)
    try:
        token = member_link_create(actor=viewer.user, membership=found)
    except PermissionDenied:
        whom = "operator" if found.user.is_staff else "staff"
        messages.error(
            request,
            f"{found.user.email} has permissions that you cannot manage. Ask the {whom} of this "
            "installation.",
        )
        return redirect(HERE)
    link = f"{page_url(request)}{reverse('setup', args=[token])}"
    return _index(request, viewer, recovered=found.user.email, password_link=link)


@changes("members/<user:user_id>/remove", Action.MEMBER_MANAGE, HERE, confirmed=True)
def member_remove(request: HttpRequest, viewer: Viewer, user_id: uuid.UUID) -> HttpResponse:
    """Remove a member, and tell which keys of theirs go on."""
    found = member_get(**viewer.whose, user_id=user_id)
    left = services.membership_end(actor=viewer.user, membership=found)
    messages.success(request, f"{found.user.email} no longer has access.")
    # Whoever removes themselves may not see this page again.
    return _index(request, viewer, left=left) if found.user != viewer.user else redirect("overview")


@page("invitations/<invite:invitation_id>", Action.MEMBER_MANAGE, "POST")
def invitation_end(request: HttpRequest, viewer: Viewer, invitation_id: uuid.UUID) -> HttpResponse:
    found = services.invitation_get(**viewer.whose, invitation_id=invitation_id)
    if services.invitation_withdraw(actor=viewer.user, invitation=found):
        messages.success(request, f"The link for {found.email} is no longer valid.")
    else:
        messages.info(request, f"The link for {found.email} was already used or withdrawn.")
    return redirect(HERE)


@unseen
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """What a link offers, and its acceptance: by the account it names, or by making that."""
    found = services.invitation_of(token=token)
    if found is None:
        return _spent(request)
    known = user_find(email=found.email)
    form = None if known else PasswordForm(request.POST or None)
    if request.method == "POST":
        try:
            if request.user == known:
                return _accept(request, token, known)
            if form is not None and form.is_valid():
                return _sign_up(request, token, form.cleaned_data["password"])
        except services.BadInvitation:
            return _spent(request)
        except ValidationError as error:
            if form is not None:
                form.add_error(None, error)
    context = {
        "invitation": found,
        "role": ROLE_WORDS[Role(found.role)],
        "known": known,
        "form": form,
        "providers": settings.OIDC_PROVIDERS,
    }
    wrong = form is not None and form.is_bound
    return render(request, "people/invitation.html", context, status=422 if wrong else 200)


def _accept(request: HttpRequest, token: str, user: User) -> HttpResponse:
    organization = services.invitation_accept(token=token, user=user)
    request.session[SESSION_KEY] = str(organization.id)
    messages.success(request, f"Welcome to {organization.name}.")
    return redirect("overview")


def _sign_up(request: HttpRequest, token: str, password: str) -> HttpResponse:
    user = services.invitation_sign_up(token=token, password=password)
    messages.success(request, "Your account is created. The link no longer works.")
    return first_shown(request, user)


def _spent(request: HttpRequest) -> HttpResponse:
    text = (
        "It was already used, was withdrawn, has expired, or the link was copied incompletely. "
        "Ask the person who invited you for a new one."
    )
    return notice(request, "This invitation is no longer valid", text, status=410)
