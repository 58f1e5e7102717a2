"""One HTTP connection: `uvicorn --http controlplane.bridge.http.connection:SocketProtocol`.

uvicorn's own protocol with bounds: on the bytes, the number and the time of headers, on open
connections, and on what may wait in one. What it refuses is answered as the gateway answers.
Requests that the application names as the gateway's go there directly, all others through ASGI.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from controlplane.bridge.http import head as heads
from controlplane.bridge.http.doors import REFUSED_MAX, Doors, same_socket
from controlplane.bridge.http.exchanges import AsgiExchange, DirectExchange, Ending
from controlplane.gateway.http.exchange import Answering
from controlplane.gateway.refusal import Refusal

# How long a client may go on sending after it was answered early: closed at once, its own
# unread bytes would make the kernel throw the answer away.
LINGER_S_MAX = 2.0
# How long a client may take to read what waits for it, or the next `FLUSH_BYTES_MIN` of that.
# The gateway's own bound on one send is shorter, and tells more.
FLUSH_S_MAX = 60.0
FLUSH_BYTES_MIN = 64 * 1024
# The doors of this process; the entrance sets their bounds.
DOORS = Doors()


class SocketProtocol(HttpToolsProtocol):
    """Reads requests of one connection, within bounds; see the module."""

    _place: str | None = None
    own_socket: socket.socket | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _linger_timer: asyncio.TimerHandle | None = None
    _flush_timer: asyncio.TimerHandle | None = None
    # One for many waits: to make and cancel one for each would cost time.
    _idle_timer: asyncio.TimerHandle | None = None
    _idle_since_s = 0.0
    # The request that is being answered, or was last; those after it are in the pipeline.
    _running: AsgiExchange | None = None
    # Bytes since the last head or piece of a body was complete.
    _unread = 0
    _in_head = True
    # The head asks for a protocol that is not spoken here, and is read again without that.
    _plain = False
    # Nothing more is read: the last answer is known or in progress.
    _deaf = False
    # An answer that follows those to earlier requests, after which the connection ends.
    _last_words: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.ending = Ending(transport, self.end)
        self.lingering = Ending(transport, self.linger)
        # Who answers a path without ASGI, if anybody does.
        self._gateway_of: Callable[[str], Answering | None] = getattr(
            self.app, "gateway_of", lambda path: None
        )
        self.own_socket = same_socket(transport)
        address = self.client[0] if self.client else ""
        self._place = DOORS.enter(address, len(self.connections) - 1)
        if self._place is None:
            DOORS.refused += 1
            if DOORS.refused > REFUSED_MAX:
                transport.abort()
                return
        self._time_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        for timer in (self._head_timer, self._linger_timer, self._flush_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        waiting: list[Any] = [exchange for exchange, _ in self.pipeline]
        for exchange in (self._running, *waiting):
            if exchange is not None and not exchange.response_complete:
                exchange.leave()
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """The client sends no more; the loop closes the connection now."""
        self.end()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_flush()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.transport.is_closing():
            return
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._go_on()

    def shutdown(self) -> None:
        """The server ends: so does the connection, after the answer in progress."""
        if self._answering() is None:
            self.end()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Bytes have come: at most one read more than the bounds is ever kept."""
        if self._deaf:
            return
        if self._place is None:
            self._refuse(heads.too_many_connections())
            return
        self._unread += len(data)
        rest = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as paused:
            rest = data[paused.args[0] :]
        except httptools.HttpParserError as error:
            found = error.__context__
            self._refuse(found if isinstance(found, Refusal) else heads.malformed(str(error)))
        else:
            if self._unread > heads.HEAD_BYTES_MAX:
                self._refuse(heads.headers_too_large())
            elif self._in_head and self._head_timer is None and self._unread:
                self._time_head()
        if rest is not None:
            self._upgrade(rest)

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._in_head = True
        self._unread = self._unread or 1

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > heads.URL_BYTES_MAX:
            raise heads.url_too_long()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; one that follows the body is left out."""
        if self._in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole: refuse it, or start to answer once the requests before it are."""
        version = self.parser.get_http_version()
        told = heads.check_head(self.headers, version=version)
        # What was read may have more in it than this head.
        if (
            self._unread > heads.HEAD_BYTES_MAX
            and heads.head_bytes(self.headers) > heads.HEAD_BYTES_MAX
        ):
            raise heads.headers_too_large()
        upgrade = self.parser.should_upgrade()
        self._plain = upgrade and not super()._should_upgrade() and b"upgrade" in told
        if self._plain:
            return
        busy = self._answering() is not None
        if upgrade and (busy or heads.has_body(self.headers)):
            raise heads.upgrade_refused()
        if busy and len(self.pipeline) >= heads.PIPELINED_MAX:
            raise heads.too_many_pipelined()
        url = heads.read_url(self.url)
        self._in_head = False
        self._unread = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        path, spoken = self.root_path + url[0], upgrade and self._should_upgrade()
        gateway = None if spoken else self._gateway_of(path)
        if gateway is None:
            self._set_scope(version, path, url)
        if spoken:
            return
        # HTTP/1.0 knows neither of these two.
        self.expect_100_continue = (
            version == "1.1" and told.get(b"expect", b"").lower() == b"100-continue"
        )
        keep_alive = not upgrade and version == "1.1" and self.parser.should_keep_alive()
        if gateway is None:
            exchange, app = AsgiExchange(self, keep_alive=keep_alive), self.app
        else:
            old = version == "1.0"
            exchange = DirectExchange(self, (path, url[2]), old=old, keep_alive=keep_alive)
            app = partial(exchange.run, gateway)
        self.cycle = exchange
        self.pipeline.appendleft((exchange, app))
        self._go_on()
        if self.pipeline:
            self._bound_waiting()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)
        if self.pipeline:
            self._bound_waiting()

    def on_message_complete(self) -> None:
        """The request is whole; the next may have begun in the same read."""
        if self._plain:
            return
        self._unread = 0
        self._in_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer is out: the next, the last, or a wait for another request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._last_words is not None and not self.pipeline:
            self._say(self._last_words)
            return
        self.flow.resume_reading()
        self._idle_since_s = self.loop.time()
        if self.pipeline:
            self._go_on()
        elif self._idle_timer is None:
            self._time_idle(self.timeout_keep_alive)

    def linger(self) -> None:
        """All is said. Close once the client has heard it, or `LINGER_S_MAX` later."""
        self._deaf = True
        if self.transport.is_closing() or self._linger_timer is not None:
            return
        self.flow.resume_reading()
        self._linger_timer = self.loop.call_later(LINGER_S_MAX, self.end)
        # TLS knows no half-closed connection.
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def end(self) -> None:
        """Close once the client has read what waits for it; cut it off where it reads nothing."""
        self.transport.close()
        self._time_flush()

    def hear_no_more(self) -> None:
        """Drop what still comes: the answer is in progress before the request was whole."""
        self._deaf = True

    def _answering(self) -> AsgiExchange | None:
        """The latest request, where it is not answered yet."""
        latest: Any = self.cycle
        return None if latest is None or latest.response_complete else latest

    def _runs(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _go_on(self) -> None:
        """Begin with the next request, unless one runs or the client has still to read."""
        if self.pipeline and not self._runs() and not self.flow.write_paused:
            exchange, app = self.pipeline.pop()
            self._running = exchange  # type: ignore[assignment]
            self._start_asgi_task(exchange, app)

    def _bound_waiting(self) -> None:
        """Read on only while little waits: who does not read cannot see the client leave."""
        kept = 0
        each: Any
        for each, _ in self.pipeline:
            kept += heads.head_bytes(each.headers) + len(each.body)
        if kept > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def _set_scope(self, version: str, path: str, url: tuple[str, bytes, bytes]) -> None:
        """uvicorn's scope of this request; the gateway's have none, since nobody reads it."""
        kept = self.url, self.headers
        super().on_message_begin()
        self.url, self.headers = kept
        self.scope["headers"] = self.headers
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        self.scope["path"] = path
        self.scope["raw_path"] = self.root_path.encode("ascii") + url[1]
        self.scope["query_string"] = url[2]

    def _should_upgrade(self) -> bool:
        """Only to a WebSocket by a whole handshake; any other request is answered as it is."""
        return super()._should_upgrade() and heads.opens_websocket(
            self.parser.get_method(), self.headers
        )

    def _upgrade(self, rest: bytes) -> None:
        """The head asked for another protocol: a socket is handed over, others are ignored."""
        if self._plain:
            version = self.parser.get_http_version()
            head = heads.without_upgrade(self.parser.get_method(), self.url, version, self.headers)
            self.data_received(head + rest)
        elif self._should_upgrade():
            self._leave()
            for timer in (self._flush_timer, self._idle_timer):
                if timer is not None:
                    timer.cancel()
            self.handle_websocket_upgrade()
        else:
            self._deaf = True

    def _leave(self) -> None:
        # Its number is free for others from here on.
        if self.own_socket is not None:
            self.own_socket.detach()
        if self._place is None:
            DOORS.refused -= 1
        else:
            DOORS.leave(self._place)
        self._place = ""

    def _time_head(self) -> None:
        self._head_timer = self.loop.call_later(DOORS.head_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._deaf or self.transport.is_closing():
            return
        if self._answering() is not None:
            # The client reads an answer in the meantime, which is not cut for it.
            self._time_head()
        elif self._unread:
            self._refuse(heads.head_late(DOORS.head_s))
        else:
            self.end()

    def _time_idle(self, seconds: float) -> None:
        self._idle_timer = self.loop.call_later(seconds, self._idle_is_late)

    def _idle_is_late(self) -> None:
        """End the connection unless it was used since; a head on its way has its own timer."""
        self._idle_timer = None
        if self._answering() is not None or self._unread or self._deaf:
            return
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._time_idle(left_s)
        else:
            self.end()

    def _time_flush(self) -> None:
        # A lost connection has no parser.
        if self._flush_timer is None and self.parser is not None:
            left = self.transport.get_write_buffer_size()
            self._flush_timer = self.loop.call_later(FLUSH_S_MAX, self._flush_is_late, left)

    def _flush_is_late(self, before: int) -> None:
        """Abort, unless the client has read enough since `before` bytes waited for it."""
        self._flush_timer = None
        if before - self.transport.get_write_buffer_size() < FLUSH_BYTES_MIN:
            self.transport.abort()
        else:
            self._time_flush()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal when earlier requests are answered, and end the connection."""
        self._deaf = True
        self._last_words = heads.answer_bytes(refusal)
        latest = None if self._in_head else self._answering()
        if latest is not None and latest is self._running:
            # Its body is broken.
            latest.leave()
            self._say(self._last_words)
            return
        if latest is not None:
            self.pipeline.popleft()
        if not (self.pipeline or self._runs()):
            self._say(self._last_words)

    def _say(self, data: bytes) -> None:
        self.transport.write(data)
        self.linger()
