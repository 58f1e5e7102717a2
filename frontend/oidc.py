"""OpenID Connect: where the provider is asked, and what its identity token proves.

The authorization-code flow with PKCE, state and nonce. PyJWT checks signature, algorithm, issuer,
audience and times; a person is known by issuer and subject, never by what may change.
"""

from __future__ import annotations

import base64
import json
import secrets
import urllib.error
import urllib.request
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode, urlsplit

import jwt
from django.conf import settings

from controlplane.tenants.models_people import SUBJECT_CHARS_MAX

TIMEOUT_S = 10
ANSWER_BYTES_MAX = 1 << 20
# Only with keys of the provider's own: none of these can be made with what a client knows.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
LEEWAY_S = 60
SECRET_BYTES = 32
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class OidcRefused(Exception):
    """The provider's answer proves nothing; the reason is for the log, not for whoever asks."""


@dataclass(frozen=True)
class Ask:
    """One sign-in under way, as the session keeps it."""

    state: str
    nonce: str
    verifier: str
    next: str


@dataclass(frozen=True)
class Identity:
    """Who the provider says it is; `email` only where it vouches for it, else empty."""

    issuer: str
    subject: str
    email: str


def ask_begin(next_path: str) -> Ask:
    """A new sign-in with secrets of its own."""
    state, nonce, verifier = (secrets.token_urlsafe(SECRET_BYTES) for _ in range(3))
    return Ask(state, nonce, verifier, next_path)


def ask_address(ask: Ask, *, redirect: str) -> str:
    """Where to send the browser; raises OidcRefused."""
    challenge = base64.urlsafe_b64encode(sha256(ask.verifier.encode()).digest()).rstrip(b"=")
    query = {
        "response_type": "code",
        "client_id": settings.OIDC_CLIENT_ID,
        "redirect_uri": redirect,
        "scope": "openid email",
        "state": ask.state,
        "nonce": ask.nonce,
        "code_challenge": challenge.decode(),
        "code_challenge_method": "S256",
        # An open session at the provider is no proof that its owner is at the keys.
        "prompt": "login",
    }
    return f"{_discovered()['authorization_endpoint']}?{urlencode(query)}"


def identity_of(ask: Ask, *, code: str, redirect: str) -> Identity:
    """Trade the code for a token and check it; raises OidcRefused."""
    known = _discovered()
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect,
        "code_verifier": ask.verifier,
        "client_id": settings.OIDC_CLIENT_ID,
        "client_secret": settings.OIDC_CLIENT_SECRET,
    }
    answer = _read(known["token_endpoint"], form)
    claims = _claims(str(answer.get("id_token", "")), known)
    if not secrets.compare_digest(str(claims.get("nonce", "")), ask.nonce):
        raise OidcRefused("nonce")
    audience = claims["aud"]
    shared = isinstance(audience, list) and len(audience) > 1
    if shared and claims.get("azp") != settings.OIDC_CLIENT_ID:
        raise OidcRefused("azp")
    subject, email = str(claims["sub"]), str(claims.get("email", "")).strip().lower()
    if not 0 < len(subject) <= SUBJECT_CHARS_MAX:
        raise OidcRefused("sub")
    vouched = claims.get("email_verified") is True
    return Identity(settings.OIDC_ISSUER, subject, email if vouched else "")


def _claims(token: str, known: dict[str, Any]) -> dict[str, Any]:
    try:
        keys = jwt.PyJWKSet.from_dict(_read(known["jwks_uri"]))
        wanted = jwt.get_unverified_header(token).get("kid")
        found = [key for key in keys.keys if wanted is None or key.key_id == wanted]
        if len(found) != 1:
            raise OidcRefused("kid")
        claims: dict[str, Any] = jwt.decode(
            token,
            found[0].key,
            algorithms=list(ALGORITHMS),
            audience=settings.OIDC_CLIENT_ID,
            # As the provider spells it, which may be with a slash at its end.
            issuer=known["issuer"],
            leeway=LEEWAY_S,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
    except jwt.PyJWTError as error:
        raise OidcRefused(str(error)) from error
    return claims


def _discovered() -> dict[str, Any]:
    found = _read(f"{settings.OIDC_ISSUER}/.well-known/openid-configuration")
    if found.get("issuer", "").rstrip("/") != settings.OIDC_ISSUER:
        raise OidcRefused("issuer")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        _require_safe(str(found.get(name, "")))
    return found


def _require_safe(address: str) -> None:
    parts = urlsplit(address)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise OidcRefused(f"not over HTTPS: {address[:200]}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A provider that sends us elsewhere is not followed: its address is the operator's."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Nowhere."""


def _read(address: str, form: dict[str, str] | None = None) -> dict[str, Any]:
    _require_safe(address)
    data = None if form is None else urlencode(form).encode()
    request = urllib.request.Request(address, data, {"Accept": "application/json"})
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_S) as answer:
            found = json.loads(answer.read(ANSWER_BYTES_MAX))
    except (OSError, ValueError) as error:
        raise OidcRefused(f"{address}: {error}") from error
    if not isinstance(found, dict):
        raise OidcRefused(f"{address}: no object")
    return found
