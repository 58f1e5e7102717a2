"""A small identity provider on loopback: real HTTP, real keys, tokens as a test wants them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT_ID, CLIENT_SECRET = "sluice", "s" * 40
KEY_ID = "one"
IN_BODY = "client_secret_post"


class Provider:
    """Issues whatever token is set next; `forms` are what it was sent for them."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2_048, {"kid": KEY_ID})
        self.token = ""
        self.forms: list[dict[str, list[str]]] = []
        # What was asked for, in order; what discovery says beside addresses; what is broken.
        self.asked: list[str] = []
        self.says: dict[str, Any] = {"token_endpoint_auth_methods_supported": [IN_BODY]}
        self.status = 200
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"

    def claims(self, nonce: str, /, **changes: Any) -> dict[str, Any]:
        """A good token's content, with some of it changed."""
        now = int(time.time())
        return {
            "iss": self.issuer,
            "sub": "dora-7",
            "aud": CLIENT_ID,
            "exp": now + 300,
            "iat": now,
            "nonce": nonce,
            "email": "dora@example.org",
            "email_verified": True,
        } | changes

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
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                **self.says,
            },
            "/keys": {"keys": [public | {"alg": "RS256", "use": "sig"}]},
            "/token": {"id_token": self.token, "access_token": "a", "token_type": "Bearer"},
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            """Answers JSON."""

            def do_GET(self) -> None:
                """Discovery and keys."""
                self._answer()

            def do_POST(self) -> None:
                """A code for a token."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                provider.forms.append(parse_qs(body.decode()))
                self._answer()

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
def provider_running() -> Iterator[Provider]:
    """A provider that answers until the test ends."""
    made = Provider()
    thread = Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()
