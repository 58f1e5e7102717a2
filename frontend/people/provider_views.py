"""Sign-in through an identity provider: there, and back with what it says."""

import secrets
from dataclasses import asdict

import structlog
from django.conf import settings
from django.contrib import messages
from django.core import signing
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import resolve, reverse
from django.urls.exceptions import Resolver404
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET

from controlplane.tenants.people.services import BadInvitation
from controlplane.tenants.sign_in.factors import has_factors
from controlplane.tenants.sign_in.identities import NotInvited, identity_user
from controlplane.tenants.sign_in.providers import OidcProvider
from frontend.people.oidc import (
    Ask,
    GroupsElsewhere,
    NotShownAnew,
    OidcAway,
    OidcRefused,
    ask_begin,
    identity_of,
)
from frontend.people.signing import first_shown, safe_path
from frontend.shared.access import notice
from frontend.shared.addresses import page_url
from frontend.shared.stepup import confirm_note

PENDING = "provider_ask"
PENDING_S_MAX = 600
NEXT_CHARS_MAX = 2_000
ERROR_CHARS_MAX = 200
RETRY_AFTER_S = 60
NOT_LET_IN = (
    "Single sign-on failed. You need an invitation, a group with a role here, or an account with "
    "the e-mail address that the provider verifies."
)
TOO_MANY = (
    "Single sign-on failed: you are in more groups than the provider puts into its token, so your "
    "roles are not known. Ask the provider's administrator to send only the groups that are "
    "assigned to this application."
)
_log = structlog.get_logger(__name__)


@never_cache
@require_GET
def provider_begin(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Send the browser to the provider; by a link, since no form may lead off this site."""
    provider = _named(provider_id)
    next_path = safe_path(request, request.GET.get("next", "")[:NEXT_CHARS_MAX])
    confirms = "confirm" in request.GET and request.user.is_authenticated
    try:
        redirect_to = _redirect(request, provider)
        ask, address = ask_begin(provider, next_path, redirect=redirect_to, confirms=confirms)
    except OidcAway as error:
        return _away(request, provider, error)
    except OidcRefused as error:
        return _refused(request, error)
    answer = HttpResponseRedirect(address)
    # Not in a session: whoever asks may be nobody, and nothing is kept for them here.
    answer.set_cookie(
        PENDING,
        signing.dumps(asdict(ask), salt=PENDING, compress=True),
        max_age=PENDING_S_MAX,
        path=_place(provider),
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )
    return answer


@never_cache
@require_GET
@sensitive_variables()
def provider_done(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Sign in, or confirm the session, as whom the provider names."""
    provider, ask = _named(provider_id), _pending(request)
    if ask is None or ask.provider != provider.id:
        return redirect("sign_in")
    try:
        answer = _come_back(request, provider, ask)
    except OidcAway as error:
        answer = _away(request, provider, error)
    except (OidcRefused, NotInvited, BadInvitation) as error:
        answer = _refused(request, error)
    answer.delete_cookie(PENDING, path=_place(provider), samesite="Lax")
    return answer


def _named(provider_id: str) -> OidcProvider:
    found = (each for each in settings.OIDC_PROVIDERS if each.id == provider_id)
    provider = next(found, None)
    if provider is None:
        raise Http404
    return provider


def _come_back(request: HttpRequest, provider: OidcProvider, ask: Ask) -> HttpResponse:
    """Raises OidcRefused, OidcAway, NotInvited, BadInvitation."""
    # Whoever made this browser come here has not begun this sign-in.
    if not secrets.compare_digest(request.GET.get("state", "").encode(), ask.state.encode()):
        raise OidcRefused("state")
    # Where it says who it is (RFC 9207), another's answer is told apart by that, too.
    if request.GET.get("iss", provider.issuer).rstrip("/") != provider.issuer:
        raise OidcRefused("iss")
    code = request.GET.get("code", "")
    if not code:
        raise OidcRefused(request.GET.get("error", "no code")[:ERROR_CHARS_MAX])
    found = identity_of(provider, ask, code=code, redirect=_redirect(request, provider))
    token = _invitation_token(ask.next)
    user = identity_user(found, token=token)
    if ask.confirms and request.user == user and not has_factors(user=user):
        confirm_note(request, found.shown_at_s)
        return redirect(ask.next)
    if token:
        return first_shown(request, user, at_s=found.shown_at_s)
    return first_shown(request, user, ask.next, at_s=found.shown_at_s)


def _pending(request: HttpRequest) -> Ask | None:
    """The sign-in that this browser has begun here lately."""
    try:
        kept = signing.loads(request.COOKIES[PENDING], salt=PENDING, max_age=PENDING_S_MAX)
    except (KeyError, signing.BadSignature):
        return None
    return Ask(**kept)


def _place(provider: OidcProvider) -> str:
    return reverse("provider_begin", args=[provider.id])


def _redirect(request: HttpRequest, provider: OidcProvider) -> str:
    """One for each provider: what one answers is never taken for another's."""
    return f"{page_url(request)}{reverse('provider_done', args=[provider.id])}"


def _invitation_token(path: str) -> str:
    """The token, where a sign-in began at an invitation."""
    try:
        found = resolve(path.partition("?")[0])
    except Resolver404:
        return ""
    return str(found.kwargs["token"]) if found.url_name == "invitation" else ""


def _refused(request: HttpRequest, error: Exception) -> HttpResponse:
    _log.warning("single sign-on refused", reason=type(error).__name__, detail=str(error))
    if isinstance(error, NotShownAnew):
        messages.error(
            request,
            "The provider did not confirm a recent sign-in. Confirm in another way. If you have "
            "none: sign out and in again, then add a second factor in your account within 15 "
            "minutes.",
        )
        return redirect("confirm")
    messages.error(request, TOO_MANY if isinstance(error, GroupsElsewhere) else NOT_LET_IN)
    return redirect("sign_in")


def _away(request: HttpRequest, provider: OidcProvider, error: Exception) -> HttpResponse:
    _log.warning("single sign-on unavailable", detail=str(error))
    text = (
        f"{provider.name} does not respond. Try again in a minute. If your account has a "
        "password, you can sign in with it."
    )
    answer = notice(request, "Single sign-on is not available", text, status=503)
    answer["Retry-After"] = str(RETRY_AFTER_S)
    return answer
