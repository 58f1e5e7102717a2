"""One WebSocket: `uvicorn --ws controlplane.bridge.fleet.frames:FrameProtocol`.

uvicorn's own protocol queues each message, stops reading until an application has taken it, and
wakes a task for it. A node sends one for each step of its engine. Here a whole binary message goes
to whoever listens in the very call that has read it, and what is sent in one turn of the loop is
written together; all other frames (text, fragments, control, anything out of order) pass through
`websockets` as they are. Framing is that of RFC 6455, section 5.2.
"""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import apply_mask  # type: ignore[attr-defined]
from websockets.http11 import Request

# Where a scope has its line.
EXTENSION = "sluice.frames"
# What may wait for a peer that does not read.
OUTBOUND_BYTES_MAX = 64 * 1024 * 1024
REASON_BYTES_MAX = 120
SWITCHING_PROTOCOLS = 101
# The first byte of a frame: is it the last of its message, and what it is; binary, and whole.
FINAL, OPCODE, WHOLE_BINARY = 0x80, 0x0F, 0x82
CONTROL_LEAST = 0x08
# The second: whether it is masked, and its length, or how many bytes behind tell that.
MASKED, LENGTH, IN_TWO, IN_EIGHT = 0x80, 0x7F, 126, 127
MASK_BYTES = 4

Listener = Callable[[bytes], None]


class FrameProtocol(WebSocketsSansIOProtocol):
    """Reads and writes the messages of one socket; see the module."""

    _listener: Listener | None = None
    # A message of several frames is on its way.
    _fragmented = False
    # The bytes that a frame has which is not whole yet, as far as its head tells.
    _needed = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._rest = bytearray()
        self._out: list[bytes] = []

    def handle_connect(self, event: Request) -> None:
        """Show the application its line, beside what every scope has."""
        super().handle_connect(event)
        if self.response.status_code == SWITCHING_PROTOCOLS:
            self.scope["extensions"][EXTENSION] = self  # type: ignore[assignment]

    def listen(self, listener: Listener) -> None:
        """Hand whole binary messages to `listener`, which must not block, instead of queueing them.

        It is told of none before the handshake is accepted.
        """
        self._listener = listener

    def write(self, data: bytes) -> None:
        """Send a binary message, with all that are sent in this turn of the loop.

        A peer that leaves `OUTBOUND_BYTES_MAX` unread is cut off.
        """
        if self.close_sent or self.transport.is_closing():
            return
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out += (_head(len(data)), data)

    def end(self, code: int, reason: str) -> None:
        """Close with a code, after what was written; nothing is read any more but the answer."""
        if self.close_sent or self.transport.is_closing():
            return
        self._flush()
        text = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
        self.close_sent = True
        self.conn.send_close(code, text)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": text})
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take what has come: a handshake, or frames, of which the last may be incomplete."""
        if not self.handshake_initiated:
            super().data_received(data)
            return
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        at = 0
        while at < len(data):
            start, end = _frame(data, at)
            if end - start > self.config.ws_max_size:
                # Its head is enough for it to be refused.
                super().data_received(data[at:])
                return
            if end > len(data):
                self._rest += data[at:]
                self._needed = end - at
                return
            self._take(data, at, start, end)
            at = end

    def send_receive_event_to_app(self) -> None:
        """A message that came in several frames, or a text, is whole."""
        if self._listener is None or self.curr_msg_data_type == "text":
            super().send_receive_event_to_app()
            return
        data, self.frames = b"".join(self.frames), []
        if not self.close_sent:
            self._listener(data)

    def _flush(self) -> None:
        if self._out and not self.transport.is_closing():
            self.transport.write(b"".join(self._out))
            if self.transport.get_write_buffer_size() > OUTBOUND_BYTES_MAX:
                self.transport.abort()
        self._out.clear()

    def _take(self, data: bytes, at: int, start: int, end: int) -> None:
        first = data[at]
        direct = first == WHOLE_BINARY and data[at + 1] & MASKED and not self._fragmented
        if direct and self._listener is not None:
            if not self.close_sent:
                self._listener(apply_mask(data[start:end], data[start - MASK_BYTES : start]))
            return
        if first & OPCODE < CONTROL_LEAST:
            self._fragmented = not first & FINAL
        super().data_received(data[at:end])


def _frame(data: bytes, at: int) -> tuple[int, int]:
    """Where the payload of the frame at `at` begins and ends; at least, where that is not told yet.

    What tells the length may be beyond the data, and then so is the end.
    """
    start, length = at + 2, 0
    if start <= len(data):
        second = data[at + 1]
        length = second & LENGTH
        wide = 2 if length == IN_TWO else 8 if length == IN_EIGHT else 0
        if wide:
            length = int.from_bytes(data[start : start + wide]) if start + wide <= len(data) else 0
            start += wide
        if second & MASKED:
            start += MASK_BYTES
    return start, start + length


def _head(length: int) -> bytes:
    """The head of a whole binary message; a server masks none."""
    if length < IN_TWO:
        return bytes((WHOLE_BINARY, length))
    if length < 1 << 16:
        return b"\x82\x7e" + length.to_bytes(2)
    return b"\x82\x7f" + length.to_bytes(8)
