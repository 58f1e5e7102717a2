"""One WebSocket to one gateway: dial until stopped, say hello, then frames both ways.
What the frames mean to jobs and engine is the hub's business."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from inference.contract import frames
from inference.contract.codec import BadFrame, decode_from_gateway, encode
from inference.contract.replay import Replay, Resume, Resumed
from inference.node import options
from inference.node.processors import Processors
from inference.tls import client_context

log = logging.getLogger(__name__)

CLOSE_PROTOCOL = 1002
CLOSE_TRY_LATER = 1013
CLOSE_FENCED = 4409
CLOSE_REPLACED = 4410
CLOSE_ELSEWHERE = 4421
BACKOFF_DOUBLINGS_MAX = 10
SESSION_BYTES = 16
_REFUSALS = {
    401: "the gateway refused the credential (HTTP 401)",
    403: "the gateway refused the credential (HTTP 403)",
    404: "no gateway answers at this address (HTTP 404)",
    429: "too many nodes of this address dial the gateway at once (HTTP 429)",
    503: "the gateway cannot check credentials now (HTTP 503)",
}


class Fenced(Exception):
    """Another process has registered under this node's name since; this one must stop."""


class LinkHub(Protocol):
    """What a link asks of the node."""

    def hello(self, link: GatewayLink) -> frames.Hello:
        """The first frame of this link."""

    def on_welcome(self, link: GatewayLink, frame: frames.Welcome, before: str) -> None:
        """The gateway accepted us; `before` is the instance that the link led to earlier."""

    def on_frame(self, link: GatewayLink, frame: frames.FromGateway) -> None:
        """Any other frame but a ping."""

    def on_break(self, link: GatewayLink) -> None:
        """The connection is gone, and may be resumed; frames sent until then are kept."""

    def on_resumed(self, link: GatewayLink) -> None:
        """The link continues as if its connection had not broken."""

    def on_lost(self, link: GatewayLink) -> None:
        """The link is over, or was refused after our hello."""

    def reached(self) -> bool:
        """Some link is up."""

    def reached_otherwise(self, link: GatewayLink) -> bool:
        """Another link is up to the gateway that this one led to last."""


class Session:
    """What a link keeps beyond its connection, until either end gives it up; `name` was said in the
    hello.

    `received` counts the gateway's frames since the welcome.
    """

    def __init__(self, name: str, welcome: frames.Welcome) -> None:
        self.name = name
        self.received = 0
        self.silence_max_s = options.SILENT_PINGS_MAX * welcome.ping_interval_s
        self.replay = Replay()
        self._resume_s = min(options.RESUME_S, welcome.resume_s)
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def resumable(self) -> bool:
        """The gateway keeps its end of it over a break."""
        return self._resume_s > 0

    @property
    def request(self) -> Resume:
        return Resume(session=self.name, received=self.received, held=self.replay.held)

    def keep(self, data: bytes) -> None:
        if self.resumable:
            self.replay.add(data)

    def expire_later(self, expired: Callable[[], None]) -> None:
        """The connection broke: call this unless the session is resumed in time."""
        self._expiry = asyncio.get_running_loop().call_later(self._resume_s, expired)

    def go_on(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


class GatewayLink:
    """The node's side of one link; `connected` from welcome to loss, but for a break.

    `gateway` is the instance id of the process that it led to last; where `elsewhere` is set that
    takes no nodes of our pool.
    """

    def __init__(self, url: str, credential: str, hub: LinkHub) -> None:
        self.url = url
        self.connected = False
        self.elsewhere = False
        self.gateway = ""
        self._credential = credential
        self._hub = hub
        self._processors = Processors()
        self._session: Session | None = None
        self._session_name = ""
        self._outbound: deque[bytes] = deque()
        self._outbound_bytes = 0
        self._wake = asyncio.Event()
        self._failures = 0
        self._heard_s = 0.0
        self._silence_max_s = options.OPEN_TIMEOUT_S
        self._step_sent_s = 0.0
        self._connection: ClientConnection | None = None
        self._leaving = asyncio.Event()

    async def run(self) -> None:
        """Keep the link up until cancelled or hung up; raises `Fenced`."""
        try:
            await self._dial_on()
        finally:
            self._end_session()

    async def _dial_on(self) -> None:
        while not self._leaving.is_set():
            pause_s = 0.0
            try:
                await self._connect_once()
            except InvalidStatus as error:
                pause_s = _retry_after_s(error)
                status = error.response.status_code
                self._warn(_REFUSALS.get(status, f"refused with HTTP {status}"))
            except ConnectionClosed as error:
                if self._leaving.is_set():
                    return
                if error.rcvd is not None and error.rcvd.code == CLOSE_FENCED:
                    raise Fenced(error.rcvd.reason) from error
                self._warn(f"closed: {error}")
                await self._rest(None if error.rcvd is None else error.rcvd.code)
            except (OSError, TimeoutError, WebSocketException, BadFrame) as error:
                self._warn(f"{type(error).__name__}: {error}")
            await asyncio.sleep(pause_s + self._backoff_s())

    async def hang_up(self) -> None:
        """Send what is queued and close in good order, within a bound; `run` ends with it."""
        self._leaving.set()
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(options.CLOSE_TIMEOUT_S):
                await self._send_queued(connection)
        await connection.close()

    def send(self, frame: frames.FromNode) -> None:
        """Queue a frame; dropped without a session, and a gateway that reads none is left."""
        if self._session is not None:
            self.send_bytes(encode(frame))

    def send_bytes(self, data: bytes) -> None:
        """Queue an encoded frame, as `send` does."""
        if self._session is None:
            return
        self._session.keep(data)
        if self.connected:
            self._queue(data)

    def _queue(self, data: bytes) -> None:
        self._outbound.append(data)
        self._outbound_bytes += len(data)
        self._wake.set()

    def load_due(self, now_s: float) -> bool:
        """Whether the last load report to this gateway is out of date."""
        return now_s - self._step_sent_s >= options.LOAD_INTERVAL_S

    def send_step(self, step: frames.Step, now_s: float) -> None:
        self._step_sent_s = now_s
        self.send(step)

    async def _rest(self, code: int | None) -> None:
        """Where two addresses lead to one gateway, which keeps the newer link, dial once that is
        gone: else each would keep replacing the other. Where it serves other pools, seldom.
        """
        self.elsewhere = code == CLOSE_ELSEWHERE
        if self.elsewhere:
            await self._wait(options.ELSEWHERE_S if self._hub.reached() else options.BACKOFF_MAX_S)
        leaves = self._leaving.is_set
        while code == CLOSE_REPLACED and self._hub.reached_otherwise(self) and not leaves():
            await self._wait(options.HOUSEKEEPING_S)

    async def _wait(self, seconds: float) -> None:
        """For so long, or until the link is hung up."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._leaving.wait(), seconds)

    async def _connect_once(self) -> None:
        local = urlsplit(self.url).hostname in options.LOCAL_HOSTS
        async with connect(
            self.url,
            additional_headers={"Authorization": f"Bearer {self._credential}"},
            compression=None,
            max_size=frames.FRAME_BYTES_MAX,
            # The gateway's own pings say more than the socket's: they pass through its loop.
            ping_interval=None,
            open_timeout=options.OPEN_TIMEOUT_S,
            close_timeout=options.CLOSE_TIMEOUT_S,
            proxy=None if local else True,
            ssl=client_context() if self.url.startswith("wss:") else None,
        ) as connection:
            raw = connection.transport.get_extra_info("socket")
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
            try:
                await self._serve(connection)
            finally:
                self._connection = None

    async def _serve(self, connection: ClientConnection) -> None:
        self._heard_s, self._silence_max_s = time.monotonic(), options.OPEN_TIMEOUT_S
        helpers = [
            asyncio.create_task(self._write(connection)),
            asyncio.create_task(self._watch(connection)),
        ]
        try:
            if self._leaving.is_set():
                return
            self._queue(encode(self._greeting()))
            while True:
                self._on_bytes(await connection.recv())
        except BadFrame:
            self._end_session()
            await connection.close(CLOSE_PROTOCOL)
            raise
        except ConnectionClosed as error:
            # A gateway that announces its close has ended the session, too.
            if error.rcvd is not None or error.sent is not None:
                self._end_session()
            raise
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            self._disconnected()

    def _greeting(self) -> frames.Hello | Resume:
        """The first frame: resume the session, or begin one."""
        if self._session is not None:
            return self._session.request
        self._session_name = secrets.token_hex(SESSION_BYTES)
        return msgspec.structs.replace(self._hub.hello(self), session=self._session_name)

    def _on_bytes(self, data: bytes | str) -> None:
        if isinstance(data, str):
            raise BadFrame("a text message is not a frame")
        frame = decode_from_gateway(data)
        self._heard_s = time.monotonic()
        session = self._session
        if isinstance(frame, frames.Welcome):
            self._on_welcome(frame)
        elif isinstance(frame, Resumed):
            self._on_resumed(frame)
        elif session is None or not self.connected:
            raise BadFrame("the first frame was not welcome")
        else:
            session.received += 1
            if isinstance(frame, frames.Ping):
                session.replay.forget(frame.received)
                busy, count = self._processors.busy_permille(), session.received
                self.send(frames.Pong(number=frame.number, received=count, cpu_permille=busy))
            else:
                self._hub.on_frame(self, frame)

    def _on_welcome(self, frame: frames.Welcome) -> None:
        if frame.protocol != frames.PROTOCOL_VERSION or frame.ping_interval_s <= 0:
            raise BadFrame(f"welcome.protocol: {frame.protocol} is not {frames.PROTOCOL_VERSION}")
        if self._session is not None:
            raise BadFrame("welcome: there was no hello")
        self._session = Session(self._session_name, frame)
        before, self.gateway = self.gateway, frame.gateway
        self._connected(self._session)
        log.info("link up gateway=%s url=%s", frame.gateway, self.url)
        self._hub.on_welcome(self, frame, before)

    def _on_resumed(self, frame: Resumed) -> None:
        session = self._session
        if session is None or self.connected:
            raise BadFrame("resumed: it was not asked for")
        if frame.received is None:
            self._end_session()
            self._queue(encode(self._greeting()))
            return
        if not session.replay.reaches(frame.received):
            raise BadFrame(f"resumed.received: {frame.received} frames cannot be gone on from")
        for data in session.replay.since(frame.received):
            self._queue(data)
        self._connected(session)
        log.info("link resumed gateway=%s url=%s", self.gateway, self.url)
        self._hub.on_resumed(self)

    def _connected(self, session: Session) -> None:
        session.go_on()
        self.connected = True
        self._failures = 0
        self._silence_max_s = session.silence_max_s

    def _disconnected(self) -> None:
        self._outbound.clear()
        self._outbound_bytes = 0
        was_connected, self.connected = self.connected, False
        if self._session is None:
            self._hub.on_lost(self)
        elif self._leaving.is_set() or not self._session.resumable:
            self._end_session()
        elif was_connected:
            self._session.expire_later(self._expire)
            self._hub.on_break(self)

    def _expire(self) -> None:
        self._warn("the gateway was not reached again in time")
        self._end_session()

    def _end_session(self) -> None:
        """Drop the session: the outputs of its jobs have no reader any more."""
        session, self._session = self._session, None
        if session is not None:
            session.go_on()
            self.connected = False
            self._hub.on_lost(self)

    async def _write(self, connection: ClientConnection) -> None:
        """Send what is queued, in order; ends with the connection."""
        while True:
            await self._send_queued(connection)
            self._wake.clear()
            await self._wake.wait()

    async def _send_queued(self, connection: ClientConnection) -> None:
        while self._outbound:
            data = self._outbound.popleft()
            await connection.send(data)
            self._outbound_bytes -= len(data)

    async def _watch(self, connection: ClientConnection) -> None:
        """Disconnect from a gateway that is silent or does not read our frames."""
        while True:
            await asyncio.sleep(
                min(options.HOUSEKEEPING_S, self._silence_max_s / options.SILENT_PINGS_MAX)
            )
            silent_s = time.monotonic() - self._heard_s
            if silent_s > self._silence_max_s or self._outbound_bytes > options.OUTBOUND_BYTES_MAX:
                self._warn(f"silent for {silent_s:.1f} s, {self._outbound_bytes} bytes unsent")
                await connection.close(CLOSE_TRY_LATER)
                return

    def _backoff_s(self) -> float:
        factor = 1 << min(self._failures, BACKOFF_DOUBLINGS_MAX)
        self._failures += 1
        return random.uniform(0.5, 1.0) * min(options.BACKOFF_MAX_S, options.BACKOFF_MIN_S * factor)

    def _warn(self, reason: str) -> None:
        log.warning("link down url=%s reason=%r", self.url, reason)


def _retry_after_s(error: InvalidStatus) -> float:
    """How long the gateway asks to wait, within a bound; 0 where it says nothing."""
    values = error.response.headers.get_all("Retry-After")
    return (
        min(float(values[0]), options.RETRY_AFTER_MAX_S)
        if values and values[0].isdecimal()
        else 0.0
    )
