"""The edge of `/v1/*`: paths to shapes, answers to lines and bytes. Only this folder knows HTTP.

Of pages in a browser only the product's own may call the API, when they live elsewhere. The
Playground sends its short-lived token itself, so no cookie and no credential mode is allowed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from controlplane.gateway.app_state import AppState
from controlplane.gateway.batches.http import PATHS as BATCH_PATHS
from controlplane.gateway.batches.http import BatchesApi
from controlplane.gateway.bounds import within
from controlplane.gateway.call import Call, ClientGone
from controlplane.gateway.http.exchange import Exchange
from controlplane.gateway.http.shape import Dialect
from controlplane.gateway.http.shapes import COUNT_SHAPE, MESSAGES_PATH, SHAPES, dialect_of
from controlplane.gateway.openai.description import description
from controlplane.gateway.openai.key import show_key
from controlplane.gateway.openai.models import Shelf
from controlplane.gateway.openai.preflight import show_preflight
from controlplane.gateway.pipeline import serve
from controlplane.gateway.plan import PlannedStep
from controlplane.gateway.ports import LedgerAway, ReplayedAnswer, Room
from controlplane.gateway.progress import Trail
from controlplane.gateway.refusal import NO_RETRY, Refusal, internal_error, unavailable
from controlplane.gateway.responses.kept import ID, PATH, ROUTES
from controlplane.gateway.results import Asked, Placement
from controlplane.gateway.s1_admission.authenticate import authenticate, check_scopes
from controlplane.gateway.s1_admission.hold import ledger_away
from controlplane.gateway.s1_admission.limits import limit_lines
from controlplane.gateway.tasks.extras import answer_extra, unknown
from controlplane.gateway.tasks.feedback import FEEDBACK, answer_feedback
from controlplane.gateway.tasks.preflight import count_tokens, preflight
from controlplane.kernel.clock import MICROSECOND_NS
from controlplane.kernel.ids import public_id, public_request
from controlplane.kernel.spans import INDEX, STAGES

STOPPING_RETRY_S = 1
MODELS_PATH = "/v1/models"
KEY_PATH = "/v1/key"
CHAT_PATH = "/v1/chat/completions"
PREFLIGHT_PATH = "/v1/preflight"
COUNT_PATH = MESSAGES_PATH + "/count_tokens"
DESCRIPTION_PATH = "/v1/openapi.json"
DELETABLE = re.compile(r"/v1/(responses|files)/[^/]+")
OPENAI_VERSION = "openai-version: 2020-10-01"
OK = 200
JSON = "content-type: application/json"
OCTETS = "content-type: application/octet-stream"
EVENT_STREAM = "content-type: text/event-stream; charset=utf-8"
NO_STORE = "cache-control: no-store"

# Headers as `name: value`.
Lines = list[str]

_STAGES = [(stage, INDEX[stage]) for stage, _, _ in STAGES]

log = logging.getLogger(__name__)
PREFLIGHT_S = 600
ALLOWED = (
    "authorization, content-type, idempotency-key, server-timing, traceparent, tracestate,"
    " x-sluice-size-class"
)
EXPOSED = (
    "x-request-id, server-timing, openai-processing-ms, x-sluice-route, x-sluice-model,"
    " x-sluice-pool, x-sluice-fallback, x-sluice-prompt, x-sluice-queue-ms,"
    " x-sluice-idempotent-replay, x-sluice-ignored, x-sluice-masked, x-sluice-max-tokens,"
    " x-sluice-policy, x-sluice-size-class"
)


class ClientStalled(ConnectionError):
    """The client read nothing for longer than it may."""


class GatewayApp:
    """The hot path behind its connections; `serving` is how many requests are under way."""

    def __init__(self, state: AppState) -> None:
        self.state = state
        self.draining = False
        self.serving = 0
        self._idle = asyncio.Event()

    async def answer(self, exchange: Exchange) -> None:
        """Answer one request."""
        call = Call(exchange.headers, peer=exchange.peer, round_trip=exchange.round_trip)
        call.deadline_s = self.state.request_deadline_s
        call.gone = exchange.disconnected
        exchange.on_gone = call.client_left
        out = HttpOut(call, exchange, self.state)
        self.serving += 1
        try:
            if self.draining:
                # A client that keeps its connection would only meet this gateway again.
                exchange.keep_alive = False
                raise _stopping()
            await self._answer(exchange, call, out)
        except Refusal as refusal:
            own = out.dialect.lines(public_request(call.request), refusal.rooms)
            out.send_refusal(refusal, own)
        except (ClientGone, ConnectionError):
            log.info(
                "request %s: the client has gone, or reads no more", public_request(call.request)
            )
        except Exception:  # Process edge: a bug answers 500 and is logged, the process goes on.
            log.exception("request %s failed", public_request(call.request))
            out.send_refusal(internal_error("internal_error", "Internal server error."), [])
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

    async def _answer(self, exchange: Exchange, call: Call, out: HttpOut) -> None:
        path, method = exchange.path, exchange.method
        if method == "OPTIONS":
            out.send_whole(OK, b"", preflight_lines(call, path, self.state.pages_origins))
            return
        shape = SHAPES.get(path)
        if shape is not None:
            _check_method(method, "POST")
            await serve(call, exchange, shape, self.state, out)
        elif path == MODELS_PATH or path.startswith(MODELS_PATH + "/"):
            _check_method(method, "GET")
            self._models(path, call, out)
        elif path == KEY_PATH:
            _check_method(method, "GET")
            await self._key(call, out)
        elif path == PREFLIGHT_PATH:
            _check_method(method, "POST")
            found = await preflight(call, exchange, SHAPES[CHAT_PATH], self.state)
            out.send_whole(OK, show_preflight(found), [NO_STORE])
        elif path == COUNT_PATH:
            _check_method(method, "POST")
            counted = await count_tokens(call, exchange, COUNT_SHAPE, self.state)
            request = f"request-id: {public_request(call.request)}"
            out.send_whole(OK, b'{"input_tokens":%d}' % counted, [request])
        elif path == DESCRIPTION_PATH:
            _check_method(method, "GET")
            out.send_whole(OK, description(), ["cache-control: public, max-age=3600"])
        elif path.startswith(BATCH_PATHS):
            answer = await BatchesApi(call, exchange, self.state).answer()
            if isinstance(answer, bytes):
                out.send_whole(OK, answer, [NO_STORE])
            else:
                await out.send_file(answer)
        elif rated := FEEDBACK.fullmatch(path):
            _check_method(method, "POST")
            out.send_whole(OK, *await answer_feedback(exchange, call, self.state, rated[1]))
        elif routes := ROUTES.get(ID.sub(PATH + "/{id}", path)):
            _check_method(method, *routes)
            body, lines = await answer_extra(exchange, call, self.state, routes[method])
            out.send_whole(OK, body, [NO_STORE, *lines])
        else:
            raise unknown(path, method)

    def _models(self, path: str, call: Call, out: HttpOut) -> None:
        key = authenticate(call, self.state.keys)
        check_scopes(call, key, "models", self.state.places)
        served, anthropic = self.state.fleet.models(), call.header(b"anthropic-version") is not None
        shelf = Shelf(self.state.keys.snapshot(), key, served, anthropic)
        name = path.removeprefix(MODELS_PATH).removeprefix("/")
        body = shelf.show(name) if name else shelf.list()
        out.send_whole(OK, body, [])

    async def _key(self, call: Call, out: HttpOut) -> None:
        key = authenticate(call, self.state.keys)
        check_scopes(call, key, "key", self.state.places)
        try:
            standing = await self.state.standings.of(key.id)
        except LedgerAway as error:
            raise ledger_away() from error
        rooms = await self.state.limiter.look(key)
        out.send_whole(OK, show_key(key, rooms, standing), [NO_STORE])


class HttpOut:
    """One HTTP response; `started` once its status line is out. `dialect` is its client's."""

    def __init__(self, call: Call, exchange: Exchange, state: AppState) -> None:
        self.started = False
        self.dialect: Dialect = dialect_of(exchange.path)
        self._call = call
        self._exchange = exchange
        self._cors = cors_lines(call, state.pages_origins)
        self._names_node = state.node_header
        self._send_s = state.send_s

    @property
    def paused(self) -> bool:
        return self._exchange.paused

    def detach(self) -> None:
        self._exchange.disconnected, self.started = True, False

    async def drained(self) -> None:
        """Wait until the client has read enough; raises `ClientStalled`."""
        try:
            await within(self._send_s, self._exchange.drained())
        except TimeoutError as error:
            if self._exchange.on_gone is None:
                # It goes on in the background.
                self._exchange.disconnected = True
                return
            raise ClientStalled from error

    def event(self, data: bytes, trail: Trail) -> None:
        """Send events, with status and headers before the first."""
        if self.started:
            self._exchange.write(data)
        else:
            self._begin(data, trail)

    def end(self, data: bytes, trail: Trail) -> None:
        if self.started:
            self._exchange.write(data, last=True)
        elif trail.admitted is not None and trail.admitted.asked.ask.stream:
            self._begin(data, trail, last=True)
        else:
            self.send_whole(OK, data, self._lines(trail))

    def replay(self, kept: ReplayedAnswer, trail: Trail) -> None:
        """Send an answer that was given before; its body names the request that was charged."""
        kind = EVENT_STREAM if kept.stream else JSON
        lines = [*self._common(), kind, "x-sluice-idempotent-replay: true", *self._lines(trail)]
        self._exchange.begin(OK, lines, kept.data, last=True)
        self.started = True

    def refuse(self, refusal: Refusal, trail: Trail) -> None:
        """An error body, or an error event where a stream has begun."""
        self.send_refusal(refusal, self._lines(trail, refusal.rooms))

    def send_refusal(self, refusal: Refusal, lines: Lines) -> None:
        """The same before anything is known of the request."""
        if self.started:
            self.fail(self.dialect.error_event(refusal, self._request))
            return
        named = {line.partition(":")[0] for line in lines}
        lines += [f"{name}: {value}" for name, value in refusal.headers if name not in named]
        self.send_whole(refusal.status, self.dialect.error_body(refusal, self._request), lines)

    def fail(self, event: bytes) -> None:
        """End a stream that has begun with the event of its failure."""
        self._exchange.write(event, last=True)

    def send_whole(self, status: int, body: bytes, lines: Lines) -> None:
        length = f"content-length: {len(body)}"
        self._exchange.answer(status, [*self._common(), JSON, length, *lines], body)
        self.started = True

    async def send_file(self, parts: AsyncGenerator[bytes]) -> None:
        """Send bytes as they are read."""
        async with aclosing(parts):
            async for data in parts:
                if self.started:
                    await self.drained()
                    self._exchange.write(data)
                else:
                    self._exchange.begin(OK, [*self._common(), OCTETS, NO_STORE], data)
                    self.started = True
        self._exchange.write(b"", last=True)

    def _begin(self, data: bytes, trail: Trail, *, last: bool = False) -> None:
        lines = [
            *self._common(),
            EVENT_STREAM,
            "cache-control: no-cache",
            "x-accel-buffering: no",
            *self._lines(trail),
        ]
        self._exchange.begin(OK, lines, data, last=last)
        self.started = True

    @property
    def _request(self) -> str:
        return public_request(self._call.request)

    def _common(self) -> Lines:
        # Once more at its end; who leaves before takes the connection along.
        self._call.round_trip.look()
        return [
            f"x-request-id: {self._request}",
            OPENAI_VERSION,
            f"openai-processing-ms: {self._call.elapsed_us() // 1000}",
            *self._cors,
        ]

    def _lines(self, trail: Trail, rooms: tuple[Room, ...] = ()) -> Lines:
        """Rate limits, organization, route and times, as far as the request has come."""
        if trail.admitted is not None:
            rooms = trail.admitted.allowance.rooms
        lines: Lines = self.dialect.lines(self._request, rooms)
        if trail.key is not None:
            lines.append(f"openai-organization: {public_id('org', trail.key.organization)}")
        if trail.admitted is not None:
            lines += limit_lines(trail.admitted.allowance)
        if trail.asked is not None:
            lines += _asked_lines(trail.asked)
        if self._call.queued is not None:
            lines.append(f"x-sluice-queue-ms: {self._call.queued.wait_ms}")
        if trail.placement is not None and trail.step is not None:
            lines += self._served_by(trail.step, trail.placement)
            bound = trail.prompt.output_tokens if trail.prompt else trail.step.output_tokens
            if trail.asked and (trail.asked.ask.output_tokens or 0) > bound:
                lines.append(f"x-sluice-max-tokens: {bound}")
        lines.append(_server_timing(self._call))
        return lines

    def _served_by(self, step: PlannedStep, placement: Placement) -> Lines:
        lines = [f"x-sluice-model: {step.model.name}", f"x-sluice-pool: {step.pool}"]
        if self._names_node:
            lines.append(f"x-sluice-node: {placement.link.identity.name}")
        if step.number > 1:
            lines.append(f"x-sluice-fallback: {step.number}:{step.model.name}")
        return lines


def _asked_lines(asked: Asked) -> Lines:
    """What was made of the request before it was let in."""
    ask, sized = asked.ask, asked.plan.sized
    lines = [f"x-sluice-route: {asked.plan.label}"]
    if sized is not None:
        lines.append(f"x-sluice-size-class: {sized.choice.served}")
    if ask.assembly is not None:
        lines.append(f"x-sluice-prompt: {ask.assembly.label}")
    if ask.tool_labels:
        lines.append(f"x-sluice-tools: {', '.join(ask.tool_labels)}")
    if ask.ignored:
        lines.append(f"x-sluice-ignored: {', '.join(ask.ignored)}")
    if ask.calls_max is not None:
        lines.append(f"x-sluice-policy: calls_max={ask.calls_max}")
    if ask.masks is not None:
        masked = ", ".join(f"{kind}={n}" for kind, n in ask.masks.counts.items())
        lines.append(f"x-sluice-masked: {masked}")
    return lines


def _server_timing(call: Call) -> str:
    """Durations of the stages that have run, in the standard header's syntax (W3C)."""
    totals_ns = call.spans.totals_ns
    parts = [
        f"{stage};dur={us / 1000:.3f}"
        for stage, index in _STAGES
        if (us := totals_ns[index] // MICROSECOND_NS)
    ]
    return f"server-timing: {', '.join(parts)}"


def _stopping() -> Refusal:
    message = "This gateway is shutting down. Retry the request: another gateway will accept it."
    return unavailable("gateway_stopping", message, retry_after_s=STOPPING_RETRY_S)


def _check_method(method: str, *wanted: str) -> None:
    if method not in wanted:
        message = f"{method} is not allowed here; use {' or '.join(wanted)}."
        allowed = ("allow", ", ".join(wanted))
        raise Refusal(405, "method_not_allowed", message, headers=(allowed, *NO_RETRY))


def cors_lines(call: Call, origins: frozenset[str]) -> list[str]:
    """Headers that let a named origin read the answer; none for any other."""
    origin = call.header(b"origin") if origins else None
    if origin is None or origin not in origins:
        return []
    return [
        f"access-control-allow-origin: {origin}",
        f"access-control-expose-headers: {EXPOSED}",
        "vary: origin",
    ]


def preflight_lines(call: Call, path: str, origins: frozenset[str]) -> list[str]:
    """What a browser is told besides, when it asks before a request."""
    if not cors_lines(call, origins):
        return []
    methods = "GET, POST, DELETE" if DELETABLE.fullmatch(path) else "GET, POST"
    return [
        f"access-control-allow-methods: {methods}",
        f"access-control-allow-headers: {ALLOWED}",
        f"access-control-max-age: {PREFLIGHT_S}",
    ]
