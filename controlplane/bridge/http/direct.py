"""A request that the gateway answers on its connection itself, with nothing in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from controlplane.bridge.http.head import head_bytes
from controlplane.gateway.http.exchange import Answering
from controlplane.gateway.round_trip import RoundTrip

if TYPE_CHECKING:
    from controlplane.bridge.http.connection import SocketProtocol

# Bytes that may be in a line: all but control characters, tabs aside.
FINE = bytes(each for each in range(256) if each >= 0x20 and each != 0x7F) + b"\t"
CLOSE, CHUNKED = "connection: close", "transfer-encoding: chunked"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class DirectExchange:
    """The `Exchange` of `controlplane/gateway/http/exchange.py` on one connection."""

    __slots__ = (
        "_body", "_connection", "_early", "_expects", "_gateway", "_old", "_started", "_waiting",
        "gone", "headers", "keep_alive", "method", "on_gone", "path", "peer", "response_complete",
        "round_trip", "whole",
    )  # fmt: skip

    def __init__(
        self,
        connection: SocketProtocol,
        gateway: Answering,
        path: str,
        *,
        old: bool,
        keep_alive: bool,
    ) -> None:
        self.method = connection.parser.get_method().decode("ascii")
        self.path = path
        self.headers = connection.headers
        self.peer = connection.client[0] if connection.client else ""
        self.round_trip = RoundTrip(connection.own_socket)
        self.keep_alive = keep_alive
        self.on_gone: Callable[[], None] | None = None
        self.gone = self.whole = self.response_complete = False
        self._connection = connection
        self._gateway = gateway
        # HTTP/1.0 knows no chunks.
        self._old = old
        self._expects = connection.expect_100_continue
        self._early = self._started = False
        self._body = bytearray()
        self._waiting: asyncio.Future[None] | None = None

    @property
    def held_bytes(self) -> int:
        return head_bytes(self.headers) + len(self._body)

    @property
    def paused(self) -> bool:
        return self._connection.flow.write_paused and not self.gone

    def start(self) -> None:
        connection = self._connection
        task = connection.loop.create_task(self._gateway.answer(self))
        connection.tasks.add(task)
        task.add_done_callback(self._over)

    def feed(self, data: bytes) -> None:
        self._body += data
        if len(self._body) > HIGH_WATER_LIMIT:
            self._connection.flow.pause_reading()
        self._wake()

    def feed_end(self) -> None:
        self.whole = True
        self._wake()

    def leave(self) -> None:
        """The client has gone."""
        self.gone = True
        self._wake()
        if self.on_gone is not None:
            self.on_gone()

    def take(self) -> bytes:
        data = bytes(self._body)
        self._body.clear()
        return data

    async def more(self) -> None:
        connection = self._connection
        if self._expects and not self._started and not connection.transport.is_closing():
            self._expects = False
            connection.transport.write(CONTINUE)
        connection.flow.resume_reading()
        while not (self._body or self.whole or self.gone):
            self._waiting = connection.loop.create_future()
            await self._waiting

    def answer(self, status: int, lines: list[str], body: bytes) -> None:
        head = self._head(status, lines)
        self._write(head if self.method == "HEAD" else head + body, last=True)

    def begin(self, status: int, lines: list[str], data: bytes, *, last: bool = False) -> None:
        # Closing ends what has neither a length nor chunks.
        head = self._head(status, lines, () if self._old else (CHUNKED,))
        self._write(head + self._framed(data, last=last), last=last)

    def send(self, data: bytes, *, last: bool = False) -> None:
        self._write(self._framed(data, last=last), last=last)

    async def drained(self) -> None:
        await self._connection.flow.drain()

    def _head(self, status: int, lines: list[str], framing: tuple[str, ...] = ()) -> bytes:
        """Raises ValueError for a line with a control character: it could end the line."""
        if self._started:
            raise RuntimeError("the answer has begun")
        if not self.whole:
            self._early, self.keep_alive = True, False
        told = [*lines, *framing] if self.keep_alive else [*lines, CLOSE, *framing]
        text = "\r\n".join(told).encode()
        if text.translate(None, FINE) != b"\r\n" * (len(told) - 1):
            raise ValueError("a header has a control character")
        if self._early:
            self._connection.hear_no_more()
        self._started = True
        common = COMMON.text(self._connection.server_state.default_headers)
        return b"".join((STATUS_LINE[status], common, text, b"\r\n\r\n"))

    def _framed(self, data: bytes, *, last: bool) -> bytes:
        if self._old:
            return data
        chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        return chunk + LAST_CHUNK if last else chunk

    def _write(self, data: bytes, *, last: bool) -> None:
        if self.gone:
            return
        if self.response_complete:
            raise RuntimeError("the answer is complete")
        self._connection.transport.write(data)
        if last:
            self.response_complete = True
            # What the request had is free, though the connection knows its last exchange.
            self.on_gone = None
            if not self.keep_alive:
                self._close()
            self._connection.on_response_complete()

    def _close(self) -> None:
        if self._early:
            self._connection.linger()
        else:
            self._connection.end()

    def _over(self, task: asyncio.Task[None]) -> None:
        """The gateway is through, and owes no answer unless it failed."""
        connection = self._connection
        connection.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            connection.logger.error("a request failed", exc_info=error)
        if self.gone or self.response_complete:
            return
        if self._started:
            self._close()
        else:
            self.response_complete = True
            connection.fail()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class CommonLines:
    """uvicorn's headers of every answer as bytes; it makes their list anew each second."""

    def __init__(self) -> None:
        self._of: list[tuple[bytes, bytes]] = []
        self._text = b""

    def text(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        if headers is not self._of:
            self._of = headers
            self._text = b"".join([b"%b: %b\r\n" % header for header in headers])
        return self._text


COMMON = CommonLines()
