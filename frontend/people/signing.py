"""Signing in: the one place where a session of a user begins, whatever they have shown.

Password, one-time link, invitation and identity provider all come to `first_shown`; none of them
passes by a second factor that the account has.

Passkeys as a browser speaks of them: what is asked of it, and what its answer proves.

fido2 does the checking. The question waits in the session, is good for one answer, and belongs to
the address at which the pages were opened.
"""

import json
import uuid
from collections.abc import Callable
from typing import Any

from axes.handlers.proxy import AxesProxyHandler
from django.contrib.auth import authenticate, login
from django.contrib.auth.signals import user_login_failed
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from fido2 import webauthn
from fido2.server import Fido2Server

from controlplane.core.api.stepup import begin_note
from controlplane.core.audit.origin import client_address
from controlplane.kernel.clock import wall_s
from controlplane.tenants.models import FactorKind, User
from controlplane.tenants.sign_in import factors
from controlplane.tenants.sign_in.sessions import session_open, session_seen
from frontend.shared.stepup import confirm_note

STATE = "passkey_state"
ANSWER_CHARS_MAX = 20_000
UNPROVEN = "The passkey could not be verified. Try again."
# The first that fits: later browsers carry the names of earlier ones.
BROWSERS = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
)
SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)
UNKNOWN = "Unknown device"


def factor_kinds(user: User) -> set[str]:
    return {str(factor.kind) for factor in factors.factor_list(user=user)}


def factor_shown(request: HttpRequest, user: User) -> bool:
    """Whether the form that was sent holds a right code, or a passkey's right answer."""
    answer = request.POST.get("passkey", "")
    if answer:
        return proof_shown(request, user, lambda: _passkey_right(request, user, answer))
    return code_shown(request, user, request.POST.get("code", ""))


def passkey_question(request: HttpRequest, user: User) -> dict[str, Any]:
    """What a browser needs to ask for one of the user's passkeys."""
    options, state = _server(request).authenticate_begin(
        _credentials(user), user_verification=webauthn.UserVerificationRequirement.PREFERRED
    )
    request.session[STATE] = state
    return dict(options)


def passkey_offer(request: HttpRequest, user: User) -> dict[str, Any]:
    """What a browser needs to make a new passkey."""
    entity = webauthn.PublicKeyCredentialUserEntity(
        id=user.id.bytes, name=user.email, display_name=user.email
    )
    options, state = _server(request).register_begin(
        entity,
        _credentials(user),
        resident_key_requirement=webauthn.ResidentKeyRequirement.DISCOURAGED,
        user_verification=webauthn.UserVerificationRequirement.PREFERRED,
    )
    request.session[STATE] = state
    return dict(options)


def passkey_register(request: HttpRequest, user: User, *, label: str, answer: str) -> list[str]:
    """Add the passkey that a browser has made; returns recovery codes, if it is the first factor.

    Raises ValidationError (`label`, `passkey`).
    """
    state = request.session.pop(STATE, None)
    try:
        made = _server(request).register_complete(state, _read(answer)).credential_data
    except (ValueError, TypeError, KeyError) as error:
        raise ValidationError({"passkey": UNPROVEN}) from error
    if made is None:
        raise ValidationError({"passkey": UNPROVEN})
    return factors.passkey_add(
        user=user, label=label, credential_id=made.credential_id, material=bytes(made)
    )


def _passkey_right(request: HttpRequest, user: User, answer: str) -> bool:
    state = request.session.pop(STATE, None)
    try:
        given = webauthn.AuthenticationResponse.from_dict(_read(answer))
        used = _server(request).authenticate_complete(state, _credentials(user), given)
    except (ValueError, TypeError, KeyError):
        return False
    counter = given.response.authenticator_data.counter
    return factors.passkey_used(user=user, credential_id=used.credential_id, counter=counter)


def _read(answer: str) -> Any:
    if len(answer) > ANSWER_CHARS_MAX:
        raise ValueError("too long")
    found = json.loads(answer)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _credentials(user: User) -> list[webauthn.AttestedCredentialData]:
    return [
        webauthn.AttestedCredentialData(bytes(factor.material))
        for factor in factors.factor_list(user=user)
        if factor.kind == FactorKind.PASSKEY
    ]


def _server(request: HttpRequest) -> Fido2Server:
    origin = f"{request.scheme}://{request.get_host()}"
    host = request.get_host().rsplit(":", 1)[0]
    entity = webauthn.PublicKeyCredentialRpEntity(name="Sluice", id=host)
    return Fido2Server(entity, verify_origin=lambda given: given == origin)


def device_words(agent: str) -> str:
    """Browser and system where both are known, else the one that is."""
    found = [
        next((word for mark, word in marks if mark in agent), "") for marks in (BROWSERS, SYSTEMS)
    ]
    return " on ".join(word for word in found if word) or UNKNOWN


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
    if not factors.has_factors(user=user):
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
    return proof_shown(request, user, lambda: factors.code_use(user=user, code=code))


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
