"""Requests on their connection: for an ASGI application, and for the gateway without ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from controlplane.bridge.http.head import answer_bytes
from controlplane.gateway.http.exchange import Answering
from controlplane.gateway.http.round_trip import RoundTrip
from controlplane.gateway.refusal import internal_error

if TYPE_CHECKING:
    from controlplane.bridge.http.connection import SocketProtocol

# Bytes that may be in a line: all but control characters, tabs aside.
FINE = bytes(each for each in range(256) if each >= 0x20 and each != 0x7F) + b"\t"
CLOSE, CHUNKED = "connection: close", "transfer-encoding: chunked"
LAST_CHUNK = b"0\r\n\r\n"
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
# A node that is ahead brings several tokens in one read, which become one write. More than this is
# sent at once, so that whoever writes in a loop sees a client that does not read.
UNSENT_BYTES_MAX = 16 * 1024


class AsgiExchange(RequestResponseCycle):
    """uvicorn's own, which ends as its connection does."""

    def __init__(self, protocol: SocketProtocol, *, keep_alive: bool) -> None:
        super().__init__(
            scope=protocol.scope,
            transport=protocol.ending,  # type: ignore[arg-type]
            flow=protocol.flow,
            logger=protocol.logger,
            access_logger=protocol.access_logger,
            access_log=protocol.access_log,
            default_headers=protocol.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=protocol.expect_100_continue,
            keep_alive=keep_alive,
            on_response=protocol.on_response_complete,
        )
        self.headers = protocol.headers
        self._protocol = protocol
        self._unchunked = protocol.scope["http_version"] == "1.0"

    def leave(self) -> None:
        self.disconnected = True
        self.message_event.set()

    def send(self, message: Any) -> Awaitable[None]:  # type: ignore[override]
        if not self.response_started:
            self._begin()
        elif self._unchunked:
            # Closing ends the body, so that no length is owed.
            self.expected_content_length = len(message.get("body", b""))
        return super().send(message)

    async def send_500_response(self) -> None:
        refusal = internal_error("internal_error", "Internal server error.")
        self.response_started = self.response_complete = True
        if not self.transport.is_closing():
            self.transport.write(answer_bytes(refusal))
            self._protocol.linger()

    def _begin(self) -> None:
        if self._unchunked:
            self.chunked_encoding = False
        if self.more_body:
            self.keep_alive = False
            self.transport = self._protocol.lingering  # type: ignore[assignment]
            self._protocol.hear_no_more()


class DirectExchange(AsgiExchange):
    """The `Exchange` of `controlplane/gateway/http/exchange.py`, run by uvicorn as others are."""

    scope: Any = None
    query = b""
    more_body = True
    disconnected = response_started = response_complete = False
    on_gone: Callable[[], None] | None = None
    _unsent_bytes = 0

    def __init__(
        self, protocol: SocketProtocol, url: tuple[str, bytes], *, old: bool, keep_alive: bool
    ) -> None:
        # Of what `super` sets only that which is used here: there is one for each request.
        self.transport = protocol.ending  # type: ignore[assignment]
        self.flow = protocol.flow
        self.logger = protocol.logger
        self.default_headers = protocol.server_state.default_headers
        self.message_event = asyncio.Event()
        self.on_response = protocol.on_response_complete
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.keep_alive = keep_alive
        self.body = bytearray()
        self.method = protocol.parser.get_method().decode("ascii")
        self.path, self.query = url
        self.headers = protocol.headers
        self.peer = protocol.client[0] if protocol.client else ""
        self.round_trip = RoundTrip(protocol.own_socket)
        self._protocol = protocol
        self._unchunked = old
        self._unsent: list[bytes] = []

    def run(self, gateway: Answering, *_: Any) -> Awaitable[None]:
        return gateway.answer(self)

    def leave(self) -> None:
        super().leave()
        if self.on_gone is not None:
            self.on_gone()

    def take(self) -> bytes:
        if self.waiting_for_100_continue:
            self.waiting_for_100_continue = False
            self.transport.write(GO_ON)
        data = bytes(self.body)
        self.body.clear()
        # Who does not read does not see the client leave.
        self.flow.resume_reading()
        return data

    async def more(self) -> bytes:
        message: Any = await self.receive()
        found: bytes = message.get("body", b"")
        self.flow.resume_reading()
        return found

    @property
    def paused(self) -> bool:
        return self.flow.write_paused and not self.disconnected

    async def drained(self) -> None:
        await self.flow.drain()

    def answer(self, status: int, lines: list[str], body: bytes) -> None:
        head = self._head(status, lines)
        self._write(head if self.method == "HEAD" else head + body, last=True)

    def begin(self, status: int, lines: list[str], data: bytes, *, last: bool = False) -> None:
        head = self._head(status, lines, () if self._unchunked else (CHUNKED,))
        self._write(head + self._framed(data, last=last), last=last)

    def write(self, data: bytes, *, last: bool = False) -> None:
        self._write(self._framed(data, last=last), last=last)

    def _head(self, status: int, lines: list[str], framing: tuple[str, ...] = ()) -> bytes:
        """Raises ValueError for a line with a control character, which could end the line."""
        self._begin()
        told = [*lines, *framing] if self.keep_alive else [*lines, CLOSE, *framing]
        text = "\r\n".join(told).encode()
        if text.translate(None, FINE) != b"\r\n" * (len(told) - 1):
            raise ValueError("a header has a control character")
        self.response_started = True
        common = [b"%b: %b\r\n" % header for header in self.default_headers]
        return b"".join((STATUS_LINE[status], *common, text, b"\r\n\r\n"))

    def _framed(self, data: bytes, *, last: bool) -> bytes:
        if self._unchunked:
            return data
        chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        return chunk + LAST_CHUNK if last else chunk

    def _write(self, data: bytes, *, last: bool) -> None:
        if self.disconnected:
            return
        if self.response_complete:
            raise RuntimeError("the answer is complete")
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if last or self._unsent_bytes > UNSENT_BYTES_MAX:
            self._flush()
        elif len(self._unsent) == 1:
            self._protocol.loop.call_soon(self._flush)
        if last:
            self.response_complete = True
            # What the request had is free, though the connection knows its last exchange.
            self.on_gone = None
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _flush(self) -> None:
        if self._unsent and not self.disconnected:
            self.transport.write(b"".join(self._unsent))
        self._unsent.clear()
        self._unsent_bytes = 0


class Ending:
    """A transport whose `close` is the protocol's, which leaves the client time to read."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close
