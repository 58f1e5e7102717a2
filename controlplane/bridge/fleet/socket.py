"""The Channels consumer at `/fleet`: handshake and credential, then raw bytes to a `NodeLink`.

`NodeConsumer.as_asgi(gateway=...)` takes a callable that returns the running gateway.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from channels.consumer import AsyncConsumer

from controlplane.bridge.fleet.handshakes import Handshakes, TooManyHandshakes
from controlplane.gateway.nodes.host import LinkRefused
from controlplane.gateway.nodes.limits import (
    CLOSE_OVERLOADED,
    CLOSE_TOO_BIG,
    CLOSE_UNAUTHORIZED,
    CLOSE_UNSUPPORTED,
)
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.nodes.resume import LinkSocket
from controlplane.gateway.ports import FleetPort, LedgerAway

BEARER = b"Bearer "
CREDENTIAL_PREFIX = "node_sluice_"
CREDENTIAL_CHARS_MAX = 256
OUTBOUND_BYTES_MAX = 64 * 1024 * 1024
REASON_BYTES_MAX = 120
# What the server says of a socket that was lost without a close frame, or with an empty one.
CODES_OF_BREAKS = frozenset({1005, 1006})
HTTP_UNAUTHORIZED = 401
HTTP_TOO_MANY = 429
HTTP_UNAVAILABLE = 503
RETRY_S = 1

Message = dict[str, Any]


class NodeGateway(Protocol):
    """What the consumer needs of the gateway."""

    @property
    def fleet(self) -> Fleet:
        """The nodes of this process."""

    @property
    def fleet_port(self) -> FleetPort:
        """Who a credential belongs to."""

    @property
    def handshakes(self) -> Handshakes:
        """Whose turn it is to ask that."""


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
        if self._closing is None:
            self._closing = (code, reason)
        self._wake.set()

    async def write(self) -> None:
        """Write until closed, or until the socket is gone; the reader learns of that too."""
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
        gateway = self._gateway()
        await receive()  # websocket.connect
        credential, headers = _credential(scope["headers"]), scope["headers"]
        peer = (scope.get("client") or ("",))[0]
        try:
            identity = credential and await gateway.handshakes.identify(
                gateway.fleet_port, credential, peer=peer, headers=headers
            )
        except TooManyHandshakes:
            await _refuse(scope, send, HTTP_TOO_MANY, retry_after_s=RETRY_S)
            return
        except LedgerAway:
            await _refuse(scope, send, HTTP_UNAVAILABLE, retry_after_s=RETRY_S)
            return
        if not identity:
            await _refuse(scope, send, HTTP_UNAUTHORIZED)
            return
        await send({"type": "websocket.accept"})
        outbox = Outbox(send)
        writer = asyncio.create_task(outbox.write())
        try:
            link = gateway.fleet.connect(identity, send=outbox.put, close=outbox.close)
            await self._pump(link.session.socket, receive)
        except LinkRefused as refused:
            outbox.close(refused.code, refused.reason)
            await writer
        finally:
            writer.cancel()
            await asyncio.wait([writer])

    async def _pump(self, socket: LinkSocket, receive: Callable[[], Awaitable[Message]]) -> None:
        try:
            while True:
                message = await receive()
                if message["type"] == "websocket.disconnect":
                    _on_disconnect(socket, message.get("code"))
                    return
                await self.dispatch(message, socket)
        finally:
            socket.on_close("the gateway ended the connection")

    async def dispatch(self, message: Message, socket: LinkSocket) -> None:
        """Hand one message to the link; nothing is awaited, so the next disconnect is seen."""
        data = message.get("bytes")
        if data is None:
            socket.expel(CLOSE_UNSUPPORTED, "a text message is not a frame")
        else:
            socket.on_bytes(data)


async def _refuse(
    scope: Message,
    send: Callable[[Message], Awaitable[None]],
    status: int,
    *,
    retry_after_s: int | None = None,
) -> None:
    """Answer the handshake with a status where the server can, else with a mere refusal."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": CLOSE_UNAUTHORIZED})
        return
    headers = [(b"retry-after", b"%d" % retry_after_s)] if retry_after_s is not None else []
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": b""})


def _on_disconnect(socket: LinkSocket, code: int | None) -> None:
    # The server itself closes with this code when a message exceeds its own bound.
    if code == CLOSE_TOO_BIG:
        socket.expel(CLOSE_TOO_BIG, "a message over the size bound")
    end = socket.on_break if code in CODES_OF_BREAKS else socket.on_close
    end(f"the socket closed with {code}")


def _credential(headers: list[tuple[bytes, bytes]]) -> str | None:
    """What the handshake carries, if it can be one; browsers, which send an origin, have none."""
    values = dict(headers)
    authorization = values.get(b"authorization", b"")
    if b"origin" in values or not authorization.startswith(BEARER):
        return None
    credential = authorization[len(BEARER) :].decode("latin-1")
    if not credential.startswith(CREDENTIAL_PREFIX) or len(credential) > CREDENTIAL_CHARS_MAX:
        return None
    return credential
