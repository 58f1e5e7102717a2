"""The Channels consumer at `/fleet`: handshake and credential, then raw bytes to a `NodeLink`.

`NodeConsumer.as_asgi(gateway=...)` takes a callable that returns the running gateway.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from channels.consumer import AsyncConsumer

from controlplane.bridge.fleet.frames import EXTENSION, FrameProtocol
from controlplane.bridge.fleet.handshakes import Handshakes, TooManyHandshakes
from controlplane.gateway.nodes.host import LinkRefused
from controlplane.gateway.nodes.limits import CLOSE_TOO_BIG, CLOSE_UNAUTHORIZED, CLOSE_UNSUPPORTED
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.nodes.resume import LinkSocket
from controlplane.gateway.ports import FleetPort, LedgerAway

BEARER = b"Bearer "
CREDENTIAL_PREFIX = "node_sluice_"
CREDENTIAL_CHARS_MAX = 256
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
        line: FrameProtocol = scope["extensions"][EXTENSION]
        try:
            link = gateway.fleet.connect(identity, send=line.write, close=line.end)
        except LinkRefused as refused:
            await send({"type": "websocket.accept"})
            line.end(refused.code, refused.reason)
            return
        socket = link.session.socket
        try:
            line.listen(socket.on_bytes)
            await send({"type": "websocket.accept"})
            await self._pump(socket, receive)
        finally:
            socket.on_close("the gateway ended the connection")

    async def _pump(self, socket: LinkSocket, receive: Callable[[], Awaitable[Message]]) -> None:
        """What does not go straight to the link: texts, which are no frames, and the end."""
        while (message := await receive())["type"] != "websocket.disconnect":
            socket.expel(CLOSE_UNSUPPORTED, "a text message is not a frame")
        code = message.get("code")
        # The server itself closes with this code when a message exceeds its own bound.
        if code == CLOSE_TOO_BIG:
            socket.expel(CLOSE_TOO_BIG, "a message over the size bound")
        end = socket.on_break if code in CODES_OF_BREAKS else socket.on_close
        end(f"the socket closed with {code}")


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
