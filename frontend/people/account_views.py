"""Your account: password, second factors, sessions; and the page that confirms it is you."""

import uuid
from typing import Any

import segno
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.safestring import mark_safe
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from controlplane.tenants.models import FactorKind, User
from controlplane.tenants.people.models import LABEL_CHARS_MAX
from controlplane.tenants.sign_in import factors
from controlplane.tenants.sign_in.accounts import password_change
from controlplane.tenants.sign_in.sessions import session_end, session_list, sessions_end
from frontend.people import signing
from frontend.people.sign_in_views import PasswordForm, password_field
from frontend.shared import stepup
from frontend.shared.access import Viewer, page, show
from frontend.shared.forms import made_by, says_wrong

HERE = "account"
APP_SECRET = "app_secret"
GONE = "This form has expired. Check whether it was already submitted."


class ConfirmForm(forms.Form):
    """The password in use."""

    password = password_field("Password", "current-password", autofocus=True)


class ChangeForm(PasswordForm):
    """The password in use, and the new one twice."""

    before = password_field("Current password", "current-password")
    field_order = ("before", "password", "again")


def _account(
    request: HttpRequest, viewer: Viewer, /, form: ChangeForm | None = None, **more: Any
) -> HttpResponse:
    held = factors.factor_list(user=viewer.user)
    form = form or ChangeForm()
    context = {
        "form": form,
        "factors": [(factor, FactorKind(factor.kind).label) for factor in held],
        "has_app": any(factor.kind == FactorKind.TOTP for factor in held),
        "codes_left": factors.recovery_codes_left(user=viewer.user),
        "sessions": [
            (row, row.id.hex == request.session.get(signing.LISTED))
            for row in session_list(user=viewer.user)
        ],
        "label_chars_max": LABEL_CHARS_MAX,
        "has_password": viewer.user.has_usable_password(),
        **more,
    }
    return show(request, viewer, HERE, "people/account.html", context, form.errors)


page("account", None, "GET", name=HERE)(never_cache(_account))


@page("account/password", None, "POST")
@stepup.unseen
def password(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    form = ChangeForm(request.POST)

    def change() -> bool:
        before, after = form.cleaned_data["before"], form.cleaned_data["password"]
        if not signing.password_shown(request, viewer.user, before):
            raise ValidationError({"before": "The password is incorrect."})
        kept = request.session.session_key or ""
        password_change(user=viewer.user, before=before, password=after, session_key=kept)
        return True

    if not made_by(form, change):
        return _account(request, viewer, form)
    update_session_auth_hash(request, viewer.user)
    stepup.confirm_note(request)
    messages.success(request, "Your password is changed. All other sessions have ended.")
    return redirect(HERE)


@page("account/sessions/<session:session_id>", None, "POST")
def session_close(request: HttpRequest, viewer: Viewer, session_id: uuid.UUID) -> HttpResponse:
    if not session_end(user=viewer.user, session_id=session_id):
        raise Http404
    messages.success(request, "That session has ended.")
    return redirect(HERE)


@page("account/sessions/others", None, "POST")
def sessions_close(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    ended = sessions_end(
        actor=viewer.user, user=viewer.user, keep=request.session.session_key or ""
    )
    messages.success(request, f"{ended} other session{'' if ended == 1 else 's'} ended.")
    return redirect(HERE)


@page("account/app", None, "GET", "POST")
@stepup.unseen
@stepup.stepped_up_or_first
def app_setup(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Show an authenticator app's secret as a picture; add the app by a code of it."""
    # Kept while the form is open, so that a mistyped code does not make the app scan again.
    secret, kept = factors.app_secret_kept(user=viewer.user, kept=request.session.get(APP_SECRET))
    request.session[APP_SECRET] = kept
    complaint = ""
    if request.method == "POST":
        try:
            codes = factors.app_add(
                user=viewer.user, secret=secret, code=request.POST.get("code", "")
            )
        except ValidationError as error:
            complaint = " ".join(error.messages)
        else:
            del request.session[APP_SECRET]
            return _added(request, viewer, codes)
    address = factors.app_address(user=viewer.user, secret=secret)
    picture = segno.make(address).svg_inline(
        scale=4, svgclass="code-picture", lineclass=None, dark="#000", light="#fff"
    )
    context = {
        # Drawn by segno from what it escapes itself.
        "picture": mark_safe(picture),
        "secret": secret,
        "complaint": complaint,
    }
    return show(request, viewer, HERE, "people/app_setup.html", context, complaint)


@page("account/passkeys/new", None, "POST")
@stepup.stepped_up_or_first
def passkey_new(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """What the browser needs to make a passkey."""
    return JsonResponse(signing.passkey_offer(request, viewer.user))


@page("account/passkeys", None, "POST")
@stepup.unseen
@stepup.stepped_up_or_first
@says_wrong(HERE)
def passkey_save(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    given = request.POST
    codes = signing.passkey_register(
        request, viewer.user, label=given.get("label", ""), answer=given.get("passkey", "")
    )
    return _added(request, viewer, codes)


def _added(request: HttpRequest, viewer: Viewer, codes: list[str]) -> HttpResponse:
    messages.success(request, "Sign-in now asks for it.")
    return _account(request, viewer, codes="\n".join(codes)) if codes else redirect(HERE)


@page("account/factors/<factor:factor_id>", None, "POST")
@stepup.stepped_up
def factor_delete(request: HttpRequest, viewer: Viewer, factor_id: uuid.UUID) -> HttpResponse:
    if not factors.factor_remove(user=viewer.user, factor_id=factor_id):
        raise Http404
    messages.success(request, "Removed.")
    return redirect(HERE)


@stepup.secret_page("account/codes", None, "POST")
def codes_new(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    if not factors.factor_list(user=viewer.user):
        raise Http404
    return _account(request, viewer, codes="\n".join(factors.recovery_codes_make(user=viewer.user)))


@require_POST
def passkey_ask(request: HttpRequest) -> HttpResponse:
    """What the browser needs to ask for a passkey: of who signs in, or of who confirms."""
    pending = signing.pending_user(request)
    user = request.user if isinstance(request.user, User) else pending and pending[0]
    if not user:
        raise Http404
    return JsonResponse(signing.passkey_question(request, user))


@page("confirm", None, "GET", "POST")
@stepup.unseen
def confirm(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Confirm it's you: by a second factor where there is one, else by the password."""
    kinds = signing.factor_kinds(viewer.user)
    next_path = request.POST.get("next") or request.GET.get("next", "")
    failed = False
    if request.method == "POST":
        failed = not (
            signing.factor_shown(request, viewer.user)
            if kinds
            else signing.password_shown(request, viewer.user, request.POST.get("password", ""))
        )
        if not failed:
            stepup.confirm_note(request)
            return redirect(signing.safe_path(request, next_path))
    linked = set(viewer.user.outside_identities.values_list("issuer", flat=True))
    context = {
        "viewer": viewer,
        "kinds": kinds,
        "failed": failed,
        "form": ConfirmForm(),
        "next": next_path,
        "has_password": viewer.user.has_usable_password(),
        # Those that know the person: what another says would confirm nobody.
        "providers": [each for each in settings.OIDC_PROVIDERS if each.issuer in linked],
    }
    return render(request, "people/confirm.html", context, status=422 if failed else 200)


@stepup.secret_page("confirm/form", None, "GET")
def confirmed(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Send again, once and by the browser, the form that had to wait for the confirmation."""
    form = stepup.form_take(request, request.GET.get("form", ""))
    if form is None:
        messages.warning(request, GONE)
        return redirect("overview")
    return render(request, "people/confirmed.html", {"viewer": viewer, "form": form})
