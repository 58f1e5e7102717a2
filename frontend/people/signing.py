"""Signing in: the one place where a session of a user begins, whatever they have shown.

Password, one-time link, invitation and identity provider all come to `first_shown`; none of them
passes by a second factor that the account has.
"""

import uuid
from collections.abc import Callable

from axes.handlers.proxy import AxesProxyHandler
from django.contrib.auth import authenticate, login
from django.contrib.auth.signals import user_login_failed
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme

from controlplane.core.api.stepup import begin_note
from controlplane.core.audit.origin import client_address
from controlplane.kernel.clock import wall_s
from controlplane.tenants.models import User
from controlplane.tenants.sign_in.factors import code_use, has_factors
from controlplane.tenants.sign_in.sessions import session_open, session_seen
from frontend.people.devices import device_words
from frontend.shared.stepup import confirm_note

# Axes decides before a sign-in which backend may answer; what is shown here was checked before.
BACKEND = "django.contrib.auth.backends.ModelBackend"
PENDING = "pending_user"
PENDING_S_MAX = 300
LISTED = "listed"


def first_shown(
    request: HttpRequest, user: User, next_path: str = "", *, at_s: float | None = None
) -> HttpResponse:
    """Begin the session, or ask for the second factor first; to where the user was going.

    `at_s` is when the first factor was shown, in Unix seconds: now unless said.
    """
    if not has_factors(user=user):
        return session_begin(request, user, next_path, at_s=at_s)
    # The key changes, so that nobody who planted a session learns what becomes of it.
    request.session.flush()
    request.session[PENDING] = {"user": user.id.hex, "at_s": wall_s(), "next": next_path}
    return redirect("second_factor")


def session_begin(
    request: HttpRequest, user: User, next_path: str = "", *, at_s: float | None = None
) -> HttpResponse:
    """Sign in: called when all that the account asks for was shown, and nowhere else."""
    login(request, user, backend=BACKEND)
    request.session.pop(PENDING, None)
    begin_note(request.session)
    confirm_note(request, at_s)
    return redirect(safe_path(request, next_path))


def pending_user(request: HttpRequest) -> tuple[User, str] | None:
    """Who has shown the first factor in this session lately, and where they were going."""
    pending = request.session.get(PENDING)
    if not pending or not 0 <= wall_s() - pending["at_s"] <= PENDING_S_MAX:
        return None
    user = User.objects.filter(id=uuid.UUID(pending["user"]), is_active=True).first()
    return (user, pending["next"]) if user else None


def code_shown(request: HttpRequest, user: User, code: str) -> bool:
    """Whether a code of the user's is right."""
    return proof_shown(request, user, lambda: code_use(user=user, code=code))


def proof_shown(request: HttpRequest, user: User, right: Callable[[], bool]) -> bool:
    """Whether a second factor is right; wrong ones count as failed sign-ins do."""
    credentials = {"username": user.email}
    if not AxesProxyHandler.is_allowed(request, credentials):
        request.axes_locked_out = True  # type: ignore[attr-defined]
        return False
    if right():
        return True
    user_login_failed.send(sender=__name__, credentials=credentials, request=request)
    return False


def password_shown(request: HttpRequest, user: User, password: str) -> bool:
    """Whether the password is the user's; wrong ones count as failed sign-ins do."""
    return authenticate(request, username=user.email, password=password) == user


def safe_path(request: HttpRequest, path: str) -> str:
    """The path where it is one of this site's, else the Overview."""
    allowed = url_has_allowed_host_and_scheme(
        path, {request.get_host()}, require_https=request.is_secure()
    )
    return path if allowed else resolve_url("overview")


class SessionsListed:
    """Middleware: each session in which somebody is signed in has a row that its owner can see."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer, then note the session; a view that signs in or changes a key has done so then."""
        response = self._get_response(request)
        # Asking for the user of a request without a session would make its answer vary by cookie.
        if not request.session.accessed:
            return response
        user, key = request.user, request.session.session_key
        if not isinstance(user, User) or key is None:
            return response
        address = client_address(request) or None
        listed = request.session.get(LISTED)
        if listed is None:
            device = device_words(request.headers.get("User-Agent", ""))
            made = session_open(user=user, session_key=key, device=device, address=address)
            request.session[LISTED] = made.hex
        else:
            session_seen(session_id=uuid.UUID(listed), session_key=key, address=address)
        return response
