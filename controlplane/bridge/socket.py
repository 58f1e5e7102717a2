"""The Channels consumer at `/fleet`: handshake and credential, then raw bytes to a `NodeLink`.

`NodeConsumer.as_asgi(gateway=...)` takes a callable that returns the running gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from channels.consumer import AsyncConsumer

from controlplane.gateway.nodes.host import LinkRefused
from controlplane.gateway.nodes.limits import (
    CLOSE_OVERLOADED,
    CLOSE_TOO_BIG,
    CLOSE_UNAUTHORIZED,
    CLOSE_UNSUPPORTED,
)
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.ports import FleetPort, LedgerAway, NodeIdentity

BEARER = b"Bearer "
CREDENTIAL_PREFIX = "node_sluice_"
CREDENTIAL_CHARS_MAX = 256
OUTBOUND_BYTES_MAX = 64 * 1024 * 1024
REASON_BYTES_MAX = 120
HTTP_UNAUTHORIZED = 401
HTTP_UNAVAILABLE = 503

Message = dict[str, Any]


class NodeGateway(Protocol):
    """What the consumer needs of the gateway."""

    @property
    def fleet(self) -> Fleet:
        """The nodes of this process."""

    @property
    def fleet_port(self) -> FleetPort:
        """Who a credential belongs to."""


class Outbox:
    """Frames on their way out, written in order by one task; `close` comes after what is queued."""

    def __init__(self, send: Callable[[Message], Awaitable[None]]) -> None:
        self._send = send
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._closing: tuple[int, str] | None = None

    def put(self, data: bytes) -> None:
        """Queue a frame; a node that reads none is left."""
        self._frames.append(data)
        self._bytes += len(data)
        if self._bytes > OUTBOUND_BYTES_MAX:
            self._frames.clear()
            self.close(CLOSE_OVERLOADED, "the node does not read")
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """Close the socket once what is queued is written."""
        if self._closing is None:
            self._closing = (code, reason)
        self._wake.set()

    async def write(self) -> None:
        """Write until closed, or until the socket is gone; the reader hears of that too."""
        with contextlib.suppress(OSError):
            await self._write_all()

    async def _write_all(self) -> None:
        while True:
            while self._frames:
                data = self._frames.popleft()
                await self._send({"type": "websocket.send", "bytes": data})
                self._bytes -= len(data)
            if self._closing is not None:
                code, reason = self._closing
                text = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
                await self._send({"type": "websocket.close", "code": code, "reason": text})
                return
            self._wake.clear()
            await self._wake.wait()


class NodeConsumer(AsyncConsumer):  # type: ignore[misc]  # Channels ships no types.
    """One node's socket. Tokens pass here, so it does without all that Channels does per message.

    The stock consumer starts two tasks and hops to a thread for each message, and binds every
    socket to the channel layer; a node needs neither.
    """

    def __init__(self, gateway: Callable[[], NodeGateway]) -> None:
        self._gateway = gateway

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Serve one connection from handshake to disconnect."""
        gateway = self._gateway()
        await receive()  # websocket.connect
        try:
            identity = await _identity(gateway.fleet_port, scope["headers"])
        except LedgerAway:
            await _refuse(scope, send, HTTP_UNAVAILABLE)
            return
        if identity is None:
            await _refuse(scope, send, HTTP_UNAUTHORIZED)
            return
        await send({"type": "websocket.accept"})
        outbox = Outbox(send)
        writer = asyncio.create_task(outbox.write())
        try:
            link = gateway.fleet.connect(identity, send=outbox.put, close=outbox.close)
            await self._pump(link, receive)
        except LinkRefused as refused:
            outbox.close(refused.code, refused.reason)
            await writer
        finally:
            writer.cancel()
            await asyncio.wait([writer])

    async def _pump(self, link: NodeLink, receive: Callable[[], Awaitable[Message]]) -> None:
        try:
            while True:
                message = await receive()
                if message["type"] == "websocket.disconnect":
                    _on_disconnect(link, message.get("code"))
                    return
                await self.dispatch(message, link)
        finally:
            link.on_close()

    async def dispatch(self, message: Message, link: NodeLink) -> None:
        """Hand one message to the link; nothing is awaited, so the next disconnect is seen."""
        data = message.get("bytes")
        if data is None:
            link.expel(CLOSE_UNSUPPORTED, "a text message is not a frame")
        else:
            link.on_bytes(data)


async def _refuse(scope: Message, send: Callable[[Message], Awaitable[None]], status: int) -> None:
    """Answer the handshake with a status where the server can, else with a mere refusal."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": CLOSE_UNAUTHORIZED})
        return
    await send({"type": "websocket.http.response.start", "status": status, "headers": []})
    await send({"type": "websocket.http.response.body", "body": b""})


def _on_disconnect(link: NodeLink, code: int | None) -> None:
    # The server itself closes with this code when a message exceeds its own bound.
    if code == CLOSE_TOO_BIG:
        link.expel(CLOSE_TOO_BIG, "a message over the size bound")
    link.on_close(f"the socket closed with {code}")


async def _identity(port: FleetPort, headers: list[tuple[bytes, bytes]]) -> NodeIdentity | None:
    """Whose credential the handshake carries; browsers, which send an origin, have none."""
    values = dict(headers)
    authorization = values.get(b"authorization", b"")
    if b"origin" in values or not authorization.startswith(BEARER):
        return None
    credential = authorization[len(BEARER) :].decode("latin-1")
    if not credential.startswith(CREDENTIAL_PREFIX) or len(credential) > CREDENTIAL_CHARS_MAX:
        return None
    return await port.authenticate(credential)
