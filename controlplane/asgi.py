"""The ASGI entrance: a table of prefixes, cut down to what the process' role serves.

Traffic goes to plain ASGI callables; only pages go through Django, so that no request pays for it.
Nothing is answered here but `/healthz` and `/readyz`.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

import django
import msgspec
from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.utils.module_loading import import_string

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# Loose, since Django and Channels each type the three arguments in their own way.
ASGIApp = Callable[..., Awaitable[None]]

GATEWAY_FACTORY = "controlplane.bridge.compose.build_gateway"
NODE_CONSUMER = "controlplane.bridge.socket.NodeConsumer"
LIVE_ROUTES = "frontend.live.websocket_urlpatterns"
WEBSOCKET_REFUSED = 4404


class GatewayApp(Protocol):
    """What this entrance asks of the gateway."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one `/v1` request."""

    async def start(self) -> None:
        """Open the lanes to PostgreSQL and Redis."""

    async def stop(self) -> None:
        """Drain and close them."""

    def readiness(self) -> dict[str, Any]:
        """Facts about this gateway; `ready` is True once it can serve, `nodes` counts nodes."""


@dataclass(frozen=True)
class Entrance:
    """One process' applications; None where its role does not serve that prefix."""

    gateway: GatewayApp | None
    fleet: ASGIApp | None
    pages: ASGIApp | None
    live: ASGIApp | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pick the application by protocol and prefix."""
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            target = self.fleet if scope["path"] == "/fleet" else self.live
            await (target or refuse_websocket)(scope, receive, send)
        else:
            await self._lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith("/v1/") and not path.startswith("/v1/organization/"):
            await (self.gateway or not_found)(scope, receive, send)
        elif path == "/healthz":
            await answer(send, 200, {"status": "ok"})
        elif path == "/readyz":
            facts = self.gateway.readiness() if self.gateway else {"ready": True}
            await answer(send, 200 if facts["ready"] else 503, facts)
        else:
            await (self.pages or not_found)(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        if self.gateway is not None:
            await self.gateway.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self.gateway is not None:
            await self.gateway.stop()
        await send({"type": "lifespan.shutdown.complete"})


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """A prefix that this process' role does not serve."""
    message = f"This process does not serve {scope['path']}."
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    await answer(send, 404, {"error": error})


async def refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """Close a socket that nobody here serves."""
    await receive()
    await send({"type": "websocket.close", "code": WEBSOCKET_REFUSED})


async def answer(send: Send, status: int, body: dict[str, Any]) -> None:
    """Send a small JSON response."""
    content = msgspec.json.encode(body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def build(role: str) -> Entrance:
    """The applications of a role: all, gateway or web; parts of other roles are never imported."""
    serves_pages = role != "gateway"
    gateway = None if role == "web" else import_string(GATEWAY_FACTORY)()
    return Entrance(
        gateway=gateway,
        fleet=import_string(NODE_CONSUMER).as_asgi(gateway=lambda: gateway) if gateway else None,
        pages=get_asgi_application() if serves_pages else None,
        live=_live() if serves_pages else None,
    )


def _live() -> ASGIApp:
    routes = URLRouter(import_string(LIVE_ROUTES))
    guarded: ASGIApp = AllowedHostsOriginValidator(AuthMiddlewareStack(routes))
    return guarded


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
django.setup(set_prefix=False)
application = build(settings.SLUICE_ROLE)
