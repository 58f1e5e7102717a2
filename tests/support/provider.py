"""A small identity provider on loopback: real HTTP, real keys, tokens as a test wants them."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from controlplane.tenants.sign_in.providers import OidcProvider, providers_read

CLIENT_ID, CLIENT_SECRET = "sluice", "s" * 40
KEY_ID = "one"
IN_BODY, IN_HEADER = "client_secret_post", "client_secret_basic"
METHODS = "token_endpoint_auth_methods_supported"


def oidc_provider(issuer: str, **more: Any) -> OidcProvider:
    """It, as the setting names one."""
    named = {"id": "example", "name": "Example ID", "issuer": issuer, "client_id": CLIENT_ID}
    (made,) = providers_read(json.dumps([{**named, "client_secret": CLIENT_SECRET, **more}]))
    return made


class Provider:
    """Issues whatever token is set next; `forms` are what it was sent for them.

    Its issuer ends in `path`. A browser that is sent to it comes back as `person`.
    """

    def __init__(self, path: str = "") -> None:
        self.key = RSAKey.generate_key(2_048, {"kid": KEY_ID})
        self.token = ""
        self.forms: list[dict[str, list[str]]] = []
        # What was asked for, in order; what discovery says beside addresses; what is broken.
        self.asked: list[str] = []
        self.says: dict[str, Any] = {METHODS: [IN_BODY]}
        self.person: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.status = 200
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.origin = f"http://127.0.0.1:{self.server.server_port}"
        self.issuer = f"{self.origin}{path}"

    def claims(self, nonce: str, /, **changes: Any) -> dict[str, Any]:
        """A good token's content, with some of it changed; what is None is left out."""
        now = int(time.time())
        told = {
            "iss": self.issuer,
            "sub": "dora-7",
            "aud": CLIENT_ID,
            "exp": now + 300,
            "iat": now,
            "nonce": nonce,
            "email": "dora@example.org",
            "email_verified": True,
        } | changes
        return {name: value for name, value in told.items() if value is not None}

    def sign(
        self,
        claims: dict[str, Any],
        *,
        key: RSAKey | OctKey | None = None,
        algorithm: str = "RS256",
    ) -> str:
        """A token; with another key or algorithm a bad one."""
        signing = key or self.key
        return jwt.encode({"alg": algorithm, "kid": signing.kid}, claims, signing, [algorithm])

    def _answers(self) -> dict[str, Any]:
        public = self.key.as_dict(private=False)
        known = f"{urlsplit(self.issuer).path.rstrip('/')}/.well-known/openid-configuration"
        more = {"userinfo_endpoint": f"{self.origin}/userinfo"} if self.userinfo else {}
        return {
            known: {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.origin}/authorize",
                "token_endpoint": f"{self.origin}/token",
                "jwks_uri": f"{self.origin}/keys",
                **more,
                **self.says,
            },
            "/userinfo": self.userinfo,
            "/keys": {"keys": [public | {"alg": "RS256", "use": "sig"}]},
            "/token": {"id_token": self.token, "access_token": "a", "token_type": "Bearer"},
        }

    def comes_back(self, query: str) -> str:
        """Where a browser is sent that has come with this question, with a token to be had."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        self.token = self.sign(self.claims(asked["nonce"], **self.person))
        return f"{asked['redirect_uri']}?{urlencode({'code': 'c', 'state': asked['state']})}"

    def knows(self, form: dict[str, list[str]], header: str) -> bool:
        """Whether a client proves itself in one of the ways that discovery names."""
        if IN_BODY in self.says.get(METHODS, [IN_HEADER]) and "client_secret" in form:
            return form["client_secret"] == [CLIENT_SECRET]
        shown = b64decode(header.removeprefix("Basic ")).decode()
        return IN_HEADER in self.says.get(METHODS, [IN_HEADER]) and (
            shown == f"{CLIENT_ID}:{CLIENT_SECRET}"
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            """Answers JSON."""

            def do_GET(self) -> None:
                """Discovery, keys and userinfo; people are sent back at once."""
                parts = urlsplit(self.path)
                if parts.path == "/authorize":
                    self.send_response(302)
                    self.send_header("Location", provider.comes_back(parts.query))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                elif parts.path == "/userinfo" and self.headers["Authorization"] != "Bearer a":
                    self.send_error(401)
                else:
                    self._answer()

            def do_POST(self) -> None:
                """A code for a token."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                provider.forms.append(parse_qs(body.decode()))
                if provider.knows(provider.forms[-1], self.headers["Authorization"] or ""):
                    self._answer()
                else:
                    self.send_error(401)

            def _answer(self) -> None:
                provider.asked.append(self.path)
                content = json.dumps(provider._answers()[self.path]).encode()
                self.send_response(provider.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        return Handler


@contextmanager
def provider_running(path: str = "") -> Iterator[Provider]:
    """A provider that answers until the test ends."""
    made = Provider(path)
    thread = Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()
