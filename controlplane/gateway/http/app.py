"""The ASGI edge of `/v1/*`: paths to shapes, answers to messages. Only this file knows HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from controlplane.gateway.app_state import AppState
from controlplane.gateway.bounds import within
from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.http.cors import cors_headers, preflight_headers
from controlplane.gateway.openai.description import description
from controlplane.gateway.openai.key import show_key
from controlplane.gateway.openai.models import list_models, show_model
from controlplane.gateway.openai.preflight import show_preflight
from controlplane.gateway.openai.render import error_event
from controlplane.gateway.openai.shapes import SHAPES
from controlplane.gateway.pipeline import serve
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.ports import LedgerAway, ReplayedAnswer
from controlplane.gateway.progress import Trail
from controlplane.gateway.refusal import NO_RETRY, Refusal, internal_error, unavailable
from controlplane.gateway.results import Placement
from controlplane.gateway.round_trip import round_trip_of
from controlplane.gateway.s1_admission.authenticate import authenticate, check_scopes
from controlplane.gateway.s1_admission.body import Receive
from controlplane.gateway.s1_admission.hold import ledger_away
from controlplane.gateway.s1_admission.limits import limit_headers
from controlplane.gateway.tasks.preflight import preflight
from controlplane.kernel.ids import public_id, public_request
from controlplane.kernel.spans import STAGES

SEND_S_MAX = 30.0
STOPPING_RETRY_S = 1
MODELS_PATH = "/v1/models"
KEY_PATH = "/v1/key"
CHAT_PATH = "/v1/chat/completions"
PREFLIGHT_PATH = "/v1/preflight"
DESCRIPTION_PATH = "/v1/openapi.json"
OPENAI_VERSION = b"2020-10-01"
OK = 200
JSON = b"application/json"
EVENT_STREAM = b"text/event-stream; charset=utf-8"

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

log = logging.getLogger(__name__)


class ClientStalled(ConnectionError):
    """The client read nothing for longer than `SEND_S_MAX`."""


class GatewayApp:
    """The ASGI application of the hot path; `serving` is how many requests are under way."""

    def __init__(self, state: AppState) -> None:
        self.state = state
        self.draining = False
        self.serving = 0
        self._idle = asyncio.Event()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        call = Call(
            scope["headers"], peer=(scope["client"] or ("",))[0], round_trip=round_trip_of(scope)
        )
        call.deadline_s = self.state.request_deadline_s
        out = HttpOut(call, send, self.state)
        self.serving += 1
        try:
            if self.draining:
                raise _stopping()
            await self._answer(scope, call, receive, out)
        except Refusal as refusal:
            await out.send_refusal(refusal, [])
        except (ClientGone, ConnectionError):
            log.info(
                "request %s: the client has gone, or reads no more", public_request(call.request)
            )
        except Exception:  # Process edge: a bug answers 500 and is logged, the process goes on.
            log.exception("request %s failed", public_request(call.request))
            await out.send_refusal(internal_error("internal_error", "Internal server error."), [])
        finally:
            self.serving -= 1
            if not self.serving:
                self._idle.set()

    async def drain(self, seconds_max: float) -> bool:
        """Refuse new requests and wait for those under way; False where some are left."""
        self.draining = True
        try:
            async with asyncio.timeout(seconds_max):
                while self.serving:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _answer(
        self, scope: MutableMapping[str, Any], call: Call, receive: Receive, out: HttpOut
    ) -> None:
        path, method = scope["path"], scope["method"]
        if method == "OPTIONS":
            await out.send_whole(OK, b"", preflight_headers(call, self.state.pages_origins))
            return
        shape = SHAPES.get(path)
        if shape is not None:
            _check_method(method, "POST")
            await serve(call, receive, shape, self.state, out)
        elif path == MODELS_PATH or path.startswith(MODELS_PATH + "/"):
            _check_method(method, "GET")
            await self._models(path, call, out)
        elif path == KEY_PATH:
            _check_method(method, "GET")
            await self._key(call, out)
        elif path == PREFLIGHT_PATH:
            _check_method(method, "POST")
            found = await preflight(call, receive, SHAPES[CHAT_PATH], self.state)
            await out.send_whole(OK, show_preflight(found), [(b"cache-control", b"no-store")])
        elif path == DESCRIPTION_PATH:
            _check_method(method, "GET")
            await out.send_whole(OK, description(), [(b"cache-control", b"public, max-age=3600")])
        else:
            message = f"Unknown request URL: {method} {path}."
            raise Refusal(404, "unknown_url", message, headers=NO_RETRY)

    async def _models(self, path: str, call: Call, out: HttpOut) -> None:
        key = authenticate(call, self.state.keys)
        check_scopes(call, key, "models", self.state.places)
        snapshot = self.state.keys.snapshot()
        name = path.removeprefix(MODELS_PATH).removeprefix("/")
        body = show_model(snapshot, key, name) if name else list_models(snapshot, key)
        await out.send_whole(OK, body, [])

    async def _key(self, call: Call, out: HttpOut) -> None:
        key = authenticate(call, self.state.keys)
        check_scopes(call, key, "key", self.state.places)
        try:
            standing = await self.state.standings.of(key.id)
        except LedgerAway as error:
            raise ledger_away() from error
        rooms = await self.state.limiter.look(key)
        no_store = [(b"cache-control", b"no-store")]
        await out.send_whole(OK, show_key(key, rooms, standing), no_store)


class HttpOut:
    """One HTTP response; `started` once its status line is out."""

    def __init__(self, call: Call, send: Send, state: AppState) -> None:
        self.started = False
        self._call = call
        self._send = send
        self._cors = cors_headers(call, state.pages_origins)
        self._names_node = state.node_header

    async def event(self, data: bytes, trail: Trail) -> None:
        """Send events, with status and headers before the first."""
        if not self.started:
            headers = [
                (b"content-type", EVENT_STREAM),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
                *self._headers(trail),
            ]
            await self._start(OK, headers)
        await self._put(data, more=True)

    async def end(self, data: bytes, trail: Trail) -> None:
        if self.started:
            await self._put(data, more=False)
        elif trail.admitted is not None and trail.admitted.asked.ask.stream:
            await self.event(b"", trail)
            await self._put(data, more=False)
        else:
            await self.send_whole(OK, data, self._headers(trail))

    async def replay(self, kept: ReplayedAnswer, trail: Trail) -> None:
        """Send an answer that was given before; its body names the request that was charged."""
        kind = EVENT_STREAM if kept.stream else JSON
        headers = [(b"content-type", kind), (b"x-sluice-idempotent-replay", b"true")]
        await self._start(OK, headers + self._headers(trail))
        await self._put(kept.data, more=False)

    async def refuse(self, refusal: Refusal, trail: Trail) -> None:
        """An error body, or an error event where a stream has begun."""
        await self.send_refusal(refusal, self._headers(trail))

    async def send_refusal(self, refusal: Refusal, headers: Headers) -> None:
        """The same before anything is known of the request."""
        if self.started:
            await self._put(error_event(refusal.body), more=False)
            return
        named = {name for name, _ in headers}
        own = [(name.encode(), value.encode()) for name, value in refusal.headers]
        headers = [*headers, *(each for each in own if each[0] not in named)]
        await self.send_whole(refusal.status, msgspec.json.encode(refusal.body), headers)

    async def send_whole(self, status: int, body: bytes, headers: Headers) -> None:
        length = str(len(body)).encode()
        kind = [(b"content-type", JSON), (b"content-length", length)]
        await self._start(status, kind + headers)
        await self._put(body, more=False)

    async def _start(self, status: int, headers: Headers) -> None:
        self.started = True
        # Once more at its end; who leaves before takes the connection along.
        self._call.round_trip.look()
        common = [
            (b"x-request-id", public_request(self._call.request).encode()),
            (b"openai-version", OPENAI_VERSION),
            (b"openai-processing-ms", str(self._call.elapsed_us() // 1000).encode()),
            *self._cors,
        ]
        await self._send(
            {"type": "http.response.start", "status": status, "headers": common + headers}
        )

    def _headers(self, trail: Trail) -> Headers:
        """Rate limits, organization, route and times, as far as the request has come."""
        headers: Headers = []
        if trail.key is not None:
            headers.append(
                (b"openai-organization", public_id("org", trail.key.organization).encode())
            )
        if trail.admitted is not None:
            headers += limit_headers(trail.admitted.allowance)
        if trail.asked is not None:
            headers.append((b"x-sluice-route", trail.asked.plan.label.encode()))
            if (prompt := trail.asked.ask.assembly) is not None:
                headers.append((b"x-sluice-prompt", prompt.label.encode()))
        if self._call.queued is not None:
            headers.append((b"x-sluice-queue-ms", str(self._call.queued.wait_ms).encode()))
        if trail.placement is not None and trail.step is not None:
            headers += self._served_by(trail.step, trail.placement)
        headers.append((b"server-timing", _server_timing(self._call)))
        return headers

    def _served_by(self, step: PlannedStep, placement: Placement) -> Headers:
        headers = [
            (b"x-sluice-model", step.model.name.encode()),
            (b"x-sluice-pool", step.pool.encode()),
        ]
        if self._names_node:
            headers.append((b"x-sluice-node", placement.link.identity.name.encode()))
        if step.number > 1:
            headers.append((b"x-sluice-fallback", f"{step.number}:{step.model.name}".encode()))
        return headers

    async def _put(self, data: bytes, *, more: bool) -> None:
        try:
            message = {"type": "http.response.body", "body": data, "more_body": more}
            await within(SEND_S_MAX, self._send(message))
        except TimeoutError as error:
            raise ClientStalled from error


def _server_timing(call: Call) -> bytes:
    """Durations of the stages that have run, in the standard header's syntax (W3C)."""
    spans = call.spans
    parts = [
        f"{stage};dur={us / 1000:.3f}" for stage, _, _ in STAGES if (us := spans.total_us(stage))
    ]
    return ", ".join(parts).encode()


def _stopping() -> Refusal:
    message = "This gateway is shutting down. Retry the request: another gateway will accept it."
    refusal = unavailable("gateway_stopping", message, retry_after_s=STOPPING_RETRY_S)
    # A client that keeps its connection would only meet this gateway again.
    refusal.headers += (("connection", "close"),)
    return refusal


def _check_method(method: str, wanted: str) -> None:
    if method != wanted:
        message = f"{method} is not allowed here; use {wanted}."
        raise Refusal(405, "method_not_allowed", message, headers=(("allow", wanted), *NO_RETRY))
