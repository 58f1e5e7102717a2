"""Sign-in through the identity provider: there, and back with what it says."""

from __future__ import annotations

import secrets
from dataclasses import asdict

import structlog
from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import resolve, reverse
from django.urls.exceptions import Resolver404
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET

from controlplane.core.stepup import session_confirm
from controlplane.tenants.factors import has_factors
from controlplane.tenants.identities import NotInvited, identity_user
from controlplane.tenants.invitations import BadInvitation
from frontend.oidc import Ask, OidcRefused, ask_address, ask_begin, identity_of
from frontend.signing import first_shown, safe_path
from frontend.views.playground import page_url

PENDING = "provider_ask"
NEXT_CHARS_MAX = 2_000
_log = structlog.get_logger(__name__)


@never_cache
@require_GET
def provider_begin(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider; by a link, since no form may lead off this site."""
    if not settings.OIDC_ISSUER:
        raise Http404
    ask = ask_begin(safe_path(request, request.GET.get("next", "")[:NEXT_CHARS_MAX]))
    try:
        address = ask_address(ask, redirect=_redirect(request))
    except OidcRefused as error:
        return _refused(request, error)
    request.session[PENDING] = asdict(ask)
    return HttpResponseRedirect(address)


@never_cache
@require_GET
@sensitive_variables()
def provider_done(request: HttpRequest) -> HttpResponse:
    """Sign in, or confirm the session, as whom the provider names."""
    pending = request.session.pop(PENDING, None)
    if pending is None or not settings.OIDC_ISSUER:
        return redirect("sign_in")
    ask = Ask(**pending)
    try:
        # Whoever made this browser come here has not begun this sign-in.
        if not secrets.compare_digest(request.GET.get("state", "").encode(), ask.state.encode()):
            raise OidcRefused("state")
        code = request.GET.get("code", "")
        found = identity_of(ask, code=code, redirect=_redirect(request))
        user = identity_user(
            issuer=found.issuer,
            subject=found.subject,
            email=found.email,
            token=_invitation_token(ask.next),
        )
    except (OidcRefused, NotInvited, BadInvitation) as error:
        return _refused(request, error)
    if request.user == user and not has_factors(user=user):
        session_confirm(request.session)
        return redirect(ask.next)
    return first_shown(request, user, "" if _invitation_token(ask.next) else ask.next)


def _redirect(request: HttpRequest) -> str:
    return f"{page_url(request)}{reverse('provider_done')}"


def _invitation_token(path: str) -> str:
    """The token, where a sign-in began at an invitation."""
    try:
        found = resolve(path.partition("?")[0])
    except Resolver404:
        return ""
    return str(found.kwargs["token"]) if found.url_name == "invitation" else ""


def _refused(request: HttpRequest, error: Exception) -> HttpResponse:
    _log.warning("single sign-on refused", reason=type(error).__name__, detail=str(error))
    messages.error(
        request,
        "Single sign-on did not let you in. You need an invitation, or an account here with the "
        "address that the provider vouches for.",
    )
    return redirect("sign_in")
