"""One WebSocket to one gateway: dial for ever, say hello, then frames both ways.

What the frames mean to jobs and engine is the hub's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections import deque
from typing import Protocol
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from inference.contract.codec import BadFrame, decode_from_gateway, encode
from inference.contract.frames import (
    FRAME_BYTES_MAX,
    PROTOCOL_VERSION,
    FromGateway,
    FromNode,
    Hello,
    Ping,
    Pong,
    Step,
    Welcome,
)
from inference.node.options import (
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    CLOSE_TIMEOUT_S,
    HOUSEKEEPING_S,
    LOAD_INTERVAL_S,
    OPEN_TIMEOUT_S,
    OUTBOUND_BYTES_MAX,
    SILENT_PINGS_MAX,
)

log = logging.getLogger(__name__)

CLOSE_PROTOCOL = 1002
CLOSE_TRY_LATER = 1013
CLOSE_FENCED = 4409
CLOSE_REPLACED = 4410
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
BACKOFF_DOUBLINGS_MAX = 10
_REFUSALS = {
    401: "the gateway refused the credential (HTTP 401)",
    403: "the gateway refused the credential (HTTP 403)",
    404: "no gateway answers at this address (HTTP 404)",
    503: "the gateway cannot check credentials now (HTTP 503)",
}


class Fenced(Exception):
    """Another process has registered under this node's name since; this one must stop."""


class LinkHub(Protocol):
    """What a link asks of the node."""

    def hello(self, link: GatewayLink) -> Hello:
        """The first frame of this link."""

    def on_welcome(self, link: GatewayLink, frame: Welcome, before: str) -> None:
        """The gateway accepted us; `before` is the instance that the link led to earlier."""

    def on_frame(self, link: GatewayLink, frame: FromGateway) -> None:
        """Any other frame but a ping."""

    def on_lost(self, link: GatewayLink) -> None:
        """The connection is gone, or was refused after our hello."""

    def reached_otherwise(self, link: GatewayLink) -> bool:
        """Another link is up to the gateway that this one led to last."""


class GatewayLink:
    """The node's side of one link; `connected` from welcome to loss.

    `gateway` is the instance id of the process that it led to last.
    """

    def __init__(self, url: str, credential: str, hub: LinkHub) -> None:
        self.url = url
        self.connected = False
        self.gateway = ""
        self._credential = credential
        self._hub = hub
        self._outbound: deque[bytes] = deque()
        self._outbound_bytes = 0
        self._wake = asyncio.Event()
        self._failures = 0
        self._heard_s = 0.0
        self._silence_max_s = OPEN_TIMEOUT_S
        self._step_sent_s = 0.0
        self._connection: ClientConnection | None = None
        self._leaving = asyncio.Event()

    async def run(self) -> None:
        """Keep the link up until cancelled or hung up; raises `Fenced`."""
        while not self._leaving.is_set():
            try:
                await self._connect_once()
            except InvalidStatus as error:
                status = error.response.status_code
                self._warn(_REFUSALS.get(status, f"refused with HTTP {status}"))
            except ConnectionClosed as error:
                if self._leaving.is_set():
                    return
                if error.rcvd is not None and error.rcvd.code == CLOSE_FENCED:
                    raise Fenced(error.rcvd.reason) from error
                self._warn(f"closed: {error}")
                if error.rcvd is not None and error.rcvd.code == CLOSE_REPLACED:
                    await self._rest()
            except (OSError, TimeoutError, WebSocketException, BadFrame) as error:
                self._warn(f"{type(error).__name__}: {error}")
            await asyncio.sleep(self._backoff_s())

    async def hang_up(self) -> None:
        """Send what is queued and close in good order, within a bound; `run` ends with it."""
        self._leaving.set()
        connection = self._connection
        if connection is None:
            return
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._send_queued(connection)
        await connection.close()

    def send(self, frame: FromNode) -> None:
        """Queue a frame; dropped when not connected, and a gateway that reads none is left."""
        if not self.connected:
            return
        data = encode(frame)
        self._outbound.append(data)
        self._outbound_bytes += len(data)
        self._wake.set()

    def load_due(self, now_s: float) -> bool:
        """This gateway has not been told of the load for a while."""
        return now_s - self._step_sent_s >= LOAD_INTERVAL_S

    def send_step(self, step: Step, now_s: float) -> None:
        """Send outputs, or the load alone."""
        self._step_sent_s = now_s
        self.send(step)

    async def _rest(self) -> None:
        """Two addresses lead to one gateway, which keeps the newer link: dial only when it is gone.

        Without it each would replace the other for ever.
        """
        while self._hub.reached_otherwise(self):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), HOUSEKEEPING_S)
                return

    async def _connect_once(self) -> None:
        local = urlsplit(self.url).hostname in LOCAL_HOSTS
        async with connect(
            self.url,
            additional_headers={"Authorization": f"Bearer {self._credential}"},
            compression=None,
            max_size=FRAME_BYTES_MAX,
            # The gateway's own pings tell more than the socket's: they pass through its loop.
            ping_interval=None,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            proxy=None if local else True,
        ) as connection:
            raw = connection.transport.get_extra_info("socket")
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
            try:
                await self._serve(connection)
            finally:
                self._connection = None

    async def _serve(self, connection: ClientConnection) -> None:
        self._heard_s, self._silence_max_s = time.monotonic(), OPEN_TIMEOUT_S
        helpers = [
            asyncio.create_task(self._write(connection)),
            asyncio.create_task(self._watch(connection)),
        ]
        try:
            if self._leaving.is_set():
                return
            await connection.send(encode(self._hub.hello(self)))
            while True:
                self._on_bytes(await connection.recv())
        except BadFrame:
            await connection.close(CLOSE_PROTOCOL)
            raise
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            self._lost()

    def _on_bytes(self, data: bytes | str) -> None:
        if isinstance(data, str):
            raise BadFrame("a text message is not a frame")
        frame = decode_from_gateway(data)
        self._heard_s = time.monotonic()
        if isinstance(frame, Welcome):
            self._on_welcome(frame)
        elif not self.connected:
            raise BadFrame("the first frame was not welcome")
        elif isinstance(frame, Ping):
            self.send(Pong(number=frame.number))
        else:
            self._hub.on_frame(self, frame)

    def _on_welcome(self, frame: Welcome) -> None:
        if frame.protocol != PROTOCOL_VERSION or frame.ping_interval_s <= 0:
            raise BadFrame(f"welcome.protocol: {frame.protocol} is not {PROTOCOL_VERSION}")
        self.connected = True
        before, self.gateway = self.gateway, frame.gateway
        self._failures = 0
        self._silence_max_s = SILENT_PINGS_MAX * frame.ping_interval_s
        log.info("link up gateway=%s url=%s", frame.gateway, self.url)
        self._hub.on_welcome(self, frame, before)

    def _lost(self) -> None:
        self._outbound.clear()
        self._outbound_bytes = 0
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
        """Leave a gateway that is silent, or that lets our frames pile up."""
        while True:
            await asyncio.sleep(min(HOUSEKEEPING_S, self._silence_max_s / SILENT_PINGS_MAX))
            silent_s = time.monotonic() - self._heard_s
            if silent_s > self._silence_max_s or self._outbound_bytes > OUTBOUND_BYTES_MAX:
                self._warn(f"silent for {silent_s:.1f} s, {self._outbound_bytes} bytes unsent")
                await connection.close(CLOSE_TRY_LATER)
                return

    def _backoff_s(self) -> float:
        factor = 1 << min(self._failures, BACKOFF_DOUBLINGS_MAX)
        self._failures += 1
        return random.uniform(0.5, 1.0) * min(BACKOFF_MAX_S, BACKOFF_MIN_S * factor)

    def _warn(self, reason: str) -> None:
        log.warning("link down url=%s reason=%r", self.url, reason)
