"""One HTTP connection: `uvicorn --http controlplane.bridge.http.connection:SocketProtocol`.

uvicorn's own protocol with bounds: on the bytes, the number and the time of headers, on open
connections, and on what may wait in one. What it refuses is answered as the gateway answers.
Requests that the application names as the gateway's go there directly, all others through ASGI.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from controlplane.bridge.http.cycle import AsgiExchange, scope_of
from controlplane.bridge.http.direct import DirectExchange
from controlplane.bridge.http.doors import REFUSED_MAX, Doors, same_socket
from controlplane.bridge.http.head import (
    HEAD_BYTES_MAX,
    HEAD_S_MAX,
    PIPELINED_MAX,
    URL_BYTES_MAX,
    answer_bytes,
    check_head,
    has_body,
    head_bytes,
    head_late,
    headers_too_large,
    malformed,
    opens_websocket,
    read_url,
    too_many_connections,
    too_many_pipelined,
    upgrade_refused,
    url_too_long,
    without_upgrade,
)
from controlplane.gateway.http.exchange import Answering
from controlplane.gateway.refusal import Refusal, internal_error

# How long a client may go on sending after it was answered early: closed at once, its own
# unread bytes would make the kernel throw the answer away.
LINGER_S_MAX = 2.0
# How long a client may take to read what waits for it, or the next `FLUSH_BYTES_MIN` of that.
# The gateway's own bound on one send is shorter, and tells more.
FLUSH_S_MAX = 60.0
FLUSH_BYTES_MIN = 64 * 1024
# The doors of this process; the entrance sets their bounds.
DOORS = Doors()

# Who answers a path directly, if anybody does: `gateway_of` of an application that offers it.
Finding = Callable[[str], Answering | None]
Answered = DirectExchange | AsgiExchange


class SocketProtocol(HttpToolsProtocol):
    """Reads requests of one connection, within bounds; see the module."""

    _place: str | None = None
    own_socket: socket.socket | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _linger_timer: asyncio.TimerHandle | None = None
    _flush_timer: asyncio.TimerHandle | None = None
    # Runs on for as long as the connection is used: to make one for each wait would cost time.
    _idle_timer: asyncio.TimerHandle | None = None
    _idle_since_s = 0.0
    # The request that is being answered, or was last; those after it wait, and the latest of all.
    _running: Answered | None = None
    _latest: Answered | None = None
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
        self._waiting: deque[Answered] = deque()
        self._gateway_of: Finding = getattr(self.app, "gateway_of", lambda path: None)
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
        """The connection is closed, by whomever."""
        self._leave()
        for timer in (self._head_timer, self._linger_timer, self._flush_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        for exchange in (self._running, *self._waiting):
            if exchange is not None and not exchange.response_complete:
                exchange.leave()
        self._waiting.clear()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """The client sends no more; the loop closes the connection now."""
        self.end()

    def pause_writing(self) -> None:
        """The client reads too little of what it is sent."""
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
        latest = self._answering()
        if latest is None:
            self.end()
        else:
            latest.keep_alive = False

    def data_received(self, data: bytes) -> None:
        """Bytes have come: at most one read more than the bounds is ever kept."""
        if self._deaf:
            return
        if self._place is None:
            self._refuse(too_many_connections())
            return
        self._unread += len(data)
        rest = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as paused:
            rest = data[paused.args[0] :]
        except httptools.HttpParserError as error:
            found = error.__context__
            self._refuse(found if isinstance(found, Refusal) else malformed(str(error)))
        else:
            if self._unread > HEAD_BYTES_MAX:
                self._refuse(headers_too_large())
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
        if len(self.url) > URL_BYTES_MAX:
            raise url_too_long()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; one that follows the body is left out."""
        if self._in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole: refuse it, or start to answer once the requests before it are."""
        version = self.parser.get_http_version()
        told = check_head(self.headers, version=version)
        # What was read may have more in it than this head.
        if self._unread > HEAD_BYTES_MAX and head_bytes(self.headers) > HEAD_BYTES_MAX:
            raise headers_too_large()
        upgrade = self.parser.should_upgrade()
        self._plain = upgrade and not super()._should_upgrade() and b"upgrade" in told
        if self._plain:
            return
        busy = self._busy()
        if upgrade and (busy or has_body(self.headers)):
            raise upgrade_refused()
        if busy and len(self._waiting) >= PIPELINED_MAX:
            raise too_many_pipelined()
        url = read_url(self.url)
        self._in_head = False
        self._unread = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if upgrade and self._should_upgrade():
            self.scope = scope_of(self, url)
            return
        # HTTP/1.0 knows it as little as it knows how to keep a connection.
        self.expect_100_continue = (
            version == "1.1" and told.get(b"expect", b"").lower() == b"100-continue"
        )
        keep_alive = not upgrade and version == "1.1" and self.parser.should_keep_alive()
        path = self.root_path + url.path
        gateway = self._gateway_of(path)
        if gateway is None:
            self.scope = scope_of(self, url)
            self._enter(AsgiExchange(self, keep_alive=keep_alive))
        else:
            old = version == "1.0"
            self._enter(DirectExchange(self, gateway, path, old=old, keep_alive=keep_alive))

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        latest = self._answering()
        if latest is not None:
            latest.feed(body)
        if self._waiting:
            self._bound_waiting()

    def on_message_complete(self) -> None:
        """The request is whole; the next may have begun in the same read."""
        if self._plain:
            return
        self._unread = 0
        self._in_head = True
        latest = self._answering()
        if latest is not None:
            latest.feed_end()

    def on_response_complete(self) -> None:
        """An answer is out: the next, the last, or a wait for another request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._last_words is not None and not self._waiting:
            self._say(self._last_words)
            return
        self.flow.resume_reading()
        self._idle_since_s = self.loop.time()
        if self._waiting:
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

    def fail(self) -> None:
        """Say that the application has failed, as the last answer of the connection."""
        if not self.transport.is_closing():
            self._say(answer_bytes(internal_error("internal_error", "Internal server error.")))

    def run_asgi(self, exchange: AsgiExchange) -> None:
        self._start_asgi_task(exchange, self.app)

    def _answering(self) -> Answered | None:
        """The latest request, where it is not answered yet."""
        latest = self._latest
        return None if latest is None or latest.response_complete else latest

    def _busy(self) -> bool:
        """Whether a request runs, or waits for its turn."""
        running = self._running
        return bool(self._waiting) or (running is not None and not running.response_complete)

    def _enter(self, exchange: Answered) -> None:
        """Answer a request in its turn, and none while the client reads no earlier answers."""
        busy = self._busy() or self.flow.write_paused
        self._latest = exchange
        if busy:
            self._waiting.append(exchange)
            self._bound_waiting()
        else:
            self._running = exchange
            exchange.start()

    def _go_on(self) -> None:
        """Begin with the next request that waits, if its turn has come."""
        running = self._running is not None and not self._running.response_complete
        if self._waiting and not running and not self.flow.write_paused:
            self._running = self._waiting.popleft()
            self._running.start()

    def _bound_waiting(self) -> None:
        """Read on only while little waits: who does not read cannot see the client leave."""
        if sum([each.held_bytes for each in self._waiting]) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def _should_upgrade(self) -> bool:
        """Only to a WebSocket by a whole handshake; any other request is answered as it is."""
        return super()._should_upgrade() and opens_websocket(self.parser.get_method(), self.headers)

    def _upgrade(self, rest: bytes) -> None:
        """The head asked for another protocol: a socket is handed over, others are ignored."""
        if self._plain:
            version = self.parser.get_http_version()
            head = without_upgrade(self.parser.get_method(), self.url, version, self.headers)
            self.data_received(head + rest)
        elif self._should_upgrade():
            self._leave()
            if self._flush_timer is not None:
                self._flush_timer.cancel()
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
        self._head_timer = self.loop.call_later(HEAD_S_MAX, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._deaf or self.transport.is_closing():
            return
        if self._answering() is not None:
            # The client reads an answer in the meantime, which is not cut for it.
            self._time_head()
        elif self._unread:
            self._refuse(head_late())
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
        self._last_words = answer_bytes(refusal)
        # The body of the last request is broken, unless a head is.
        broken = None if self._in_head else self._answering()
        if broken is None:
            pass
        elif broken is self._running:
            broken.leave()
        else:
            self._waiting.pop()
        if broken is self._running or not self._busy():
            self._say(self._last_words)

    def _say(self, data: bytes) -> None:
        self.transport.write(data)
        self.linger()
