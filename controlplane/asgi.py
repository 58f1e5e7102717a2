"""The ASGI entrance: a table of prefixes, cut down to what the process' role serves.

The server of connections asks `gateway_of` before all else and hands the gateway its requests
itself. The rest goes to plain ASGI callables, and only pages go through Django.
Nothing is answered here but probes, paths that only programs ask for and, where there are no pages,
`/metrics`.
"""

import gc
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from posixpath import normpath
from typing import Any, Protocol

import django
import msgspec
from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from controlplane.bounded_pages import BoundedPages
from controlplane.bridge.http.connection import DOORS
from controlplane.core.jobs.process import ProcessBeat, ProcessFacts
from controlplane.core.scrape import CONTENT_TYPE, OWN_METRICS, REFUSED, may_scrape
from controlplane.gateway.http.exchange import Answering
from controlplane.kernel.apis import error_body
from controlplane.probes import PATHS as PROBES
from controlplane.probes import Probes
from controlplane.security_headers import SecurityHeaders
from controlplane.static_files import StaticFiles
from inference.contract.version import VERSION

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# Loose, since Django and Channels each type the three arguments in their own way.
ASGIApp = Callable[..., Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

SERVING = ("all", "gateway", "web")
GATEWAY_FACTORY = "controlplane.bridge.process.compose.build_gateway"
GATEWAY_HTTP = "--http controlplane.bridge.http.connection:SocketProtocol --no-proxy-headers"
NODE_CONSUMER = "controlplane.bridge.fleet.socket.NodeConsumer"
LIVE_ROUTES = "frontend.overview.live.websocket_urlpatterns"
WEBSOCKET_REFUSED = 4404
# What clients ask for whose base URL lacks `/v1`.
WITHOUT_BASE = (
    "/chat/", "/completions", "/embeddings", "/messages", "/models", "/responses", "/tokenize",
)  # fmt: skip
# Objects that are made before young ones are looked through for cycles. A request makes hundreds
# and leaves few, so that the default of 700 looks too often.
YOUNG_OBJECTS_MAX = 10_000
MS_PER_S = 1_000
# A loop that comes later than this keeps clients waiting.
LOOP_LATE_MS_MAX = 500
PLAIN = b"text/plain; charset=utf-8"
# What clients of rerankers and of vLLM ask for beside `/v1`.
OF_SERVERS = frozenset({"/rerank", "/v2/rerank", "/score", "/tokenize", "/detokenize"})
BEARER_WANTED = ((b"www-authenticate", b"Bearer"),)


class DrainedGateway(Answering, Protocol):
    """What this entrance asks of the gateway."""

    async def start(self) -> None:
        """Open the lanes to PostgreSQL and Redis."""

    async def stop(self) -> None:
        """Drain and close them."""

    def readiness(self) -> dict[str, Any]:
        """Facts about this gateway; `ready`, and `problems` that say why not."""

    async def metrics(self, *, late_s: float) -> bytes:
        """What this process tells Prometheus; `late_s` is how late its event loop comes."""

    def told(self) -> ProcessFacts:
        """What its heartbeats say."""


@dataclass(frozen=True)
class Entrance:
    """One process' applications; None where its role does not serve that prefix."""

    gateway: DrainedGateway | None
    fleet: ASGIApp | None
    pages: ASGIApp | None
    live: ASGIApp | None
    probes: Probes
    beat: ProcessBeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            target = {"/fleet": self.fleet, "/live": self.live}.get(scope["path"])
            await (target or refuse_websocket)(scope, receive, send)
        else:
            await self._lifespan(receive, send)

    def gateway_of(self, path: str) -> DrainedGateway | None:
        """The gateway, where it is to answer this path."""
        return self.gateway if means_models(path) else None

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if self.gateway_of(path) is not None:
            raise ImproperlyConfigured(f"uvicorn has to run with {GATEWAY_HTTP}")
        if means_models(path):
            await not_found(scope, receive, send)
        elif path in PROBES:
            await answer(send, *await self.probes.answer(path))
        elif path == "/version":
            await answer(send, 200, {"version": VERSION})
        elif path.startswith(WITHOUT_BASE):
            message = f"Unknown request URL: {path}. The base URL of this API must end in /v1."
            await answer(send, 404, error_body(message, code="unknown_url"))
        elif path == "/metrics" and self.gateway is not None:
            await self._metrics(self.gateway, scope, receive, send)
        else:
            await (self.pages or not_found)(scope, receive, send)

    async def _metrics(
        self, gateway: DrainedGateway, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """This gateway's own figures, for those who may have them.

        Where there are pages they tell who may, ask for these, and put their own beside them.
        """
        own = partial(gateway.metrics, late_s=self.probes.pulse.late_s)
        if self.pages is not None:
            scope[OWN_METRICS] = own
            await self.pages(scope, receive, send)
        elif may_scrape(bearer(scope["headers"])):
            await answer_bytes(send, 200, await own(), CONTENT_TYPE)
        else:
            await answer_bytes(send, 401, REFUSED.encode(), PLAIN, BEARER_WANTED)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self.probes.pulse.start()
        if self.gateway is not None:
            await self.gateway.start()
        self.beat.start()
        # What is here now stays: looking through all of it again would hold the loop for too long.
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS_MAX)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.probes.stop()
        await self.beat.stop()
        if self.gateway is not None:
            await self.gateway.stop()
        # Nor is what pages have imported looked through at the end.
        gc.freeze()
        await send({"type": "lifespan.shutdown.complete"})


def means_models(path: str) -> bool:
    """Whether a client wants the API of models, however it writes the path.

    Written otherwise it is unknown, and the answer one that the client can read.
    """
    if path.startswith("/v1/"):
        return not path.startswith("/v1/organization/")
    return path in OF_SERVERS or (normpath("/" + path.lower().lstrip("/")) + "/").startswith("/v1/")


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """A prefix that this process' role does not serve."""
    message = f"This process does not serve {scope['path']}."
    await answer(send, 404, error_body(message, code="unknown_url"))


async def refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close", "code": WEBSOCKET_REFUSED})


async def answer(send: Send, status: int, body: Mapping[str, Any]) -> None:
    await answer_bytes(send, status, msgspec.json.encode(body), b"application/json")


def bearer(headers: Headers) -> str:
    """The bearer token of a request, empty without one."""
    for name, value in headers:
        if name == b"authorization" and value.lower().startswith(b"bearer "):
            return value[len(b"bearer ") :].strip().decode("latin-1")
    return ""


async def answer_bytes(
    send: Send, status: int, content: bytes, kind: bytes, more: Headers = ()
) -> None:
    """Send a whole response that no one may keep."""
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", b"no-store"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def build(role: str) -> Entrance:
    """The applications of a role: all, gateway or web; parts of other roles are never imported."""
    if role not in SERVING:
        raise ImproperlyConfigured(f"SLUICE_ROLE={role} serves nothing over HTTP.")
    serves_pages = role != "gateway"
    DOORS.set_bounds(
        open_max=settings.CONNECTIONS_MAX,
        per_address_max=settings.ADDRESS_CONNECTIONS_MAX,
        trusted=settings.TRUSTED_PROXIES,
        head_s=settings.HEAD_S,
    )
    gateway = None if role == "web" else import_string(GATEWAY_FACTORY)()
    bounded = _bounded_pages() if serves_pages else None
    probes = Probes(gateway, has_pages=serves_pages)
    return Entrance(
        gateway=gateway,
        fleet=import_string(NODE_CONSUMER).as_asgi(gateway=lambda: gateway) if gateway else None,
        pages=SecurityHeaders(StaticFiles(bounded)) if bounded else None,
        live=_live() if serves_pages else None,
        probes=probes,
        beat=ProcessBeat(role, partial(_told, gateway, bounded, probes)),
    )


def _told(
    gateway: DrainedGateway | None, pages: BoundedPages | None, probes: Probes
) -> ProcessFacts:
    """What this process says at a heartbeat."""
    own = gateway.told() if gateway else ProcessFacts({})
    levels = {"ms event loop delay": (round(MS_PER_S * probes.pulse.lately_s), LOOP_LATE_MS_MAX)}
    if pages is not None:
        levels["page requests"] = pages.places
    return own._replace(levels={**levels, **own.levels})


def _bounded_pages() -> BoundedPages:
    return BoundedPages(get_asgi_application(), at_once_max=settings.PAGES_AT_ONCE_MAX)


def _live() -> ASGIApp:
    routes = URLRouter(import_string(LIVE_ROUTES))
    guarded: ASGIApp = AllowedHostsOriginValidator(AuthMiddlewareStack(routes))
    return guarded


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
# What is imported stays; looking through it again and again took a tenth of the start.
gc.disable()
django.setup(set_prefix=False)
application = build(settings.SLUICE_ROLE)
gc.freeze()
gc.enable()
