"""What one end of a link has sent and the other may not have got, to be sent again after a break;
and the two frames by which a node asks for that and is answered.

Frames have no numbers on the wire: both ends count them from the welcome on, in their order.
"""

from collections import deque
from itertools import islice

import msgspec

# Many seconds of a busy node's outputs; beyond it the oldest frames are dropped.
REPLAY_BYTES_MAX = 16 * 1024 * 1024


class Resume(msgspec.Struct, tag="resume", array_like=True, frozen=True, kw_only=True):
    """Instead of a hello: resume the session of a connection that broke.

    The node has `received` frames of the gateway since the welcome, and can send its own again from
    number `held` on; both ends count from 0. The answer is `Resumed`.
    """

    session: str
    received: int
    held: int


class Resumed(msgspec.Struct, tag="resumed", array_like=True, frozen=True, kw_only=True):
    """Answer to `Resume`: the gateway has `received` frames of the node, and wants the others now.

    With None the session is over: its jobs have ended here, and a hello begins a new one.
    """

    received: int | None


class Replay:
    """The newest frames of one session, `held` to `sent`; those before are gone."""

    __slots__ = ("_bytes", "_bytes_max", "_frames", "sent")

    def __init__(self, *, bytes_max: int = REPLAY_BYTES_MAX) -> None:
        self.sent = 0
        self._bytes = 0
        self._bytes_max = bytes_max
        self._frames: deque[bytes] = deque()

    @property
    def held(self) -> int:
        """The number of the oldest frame that can be sent again."""
        return self.sent - len(self._frames)

    def add(self, data: bytes) -> None:
        self.sent += 1
        self._frames.append(data)
        self._bytes += len(data)
        while self._bytes > self._bytes_max:
            self._drop()

    def forget(self, received: int) -> None:
        """Drop the frames that the peer has received."""
        while self._frames and self.held < received:
            self._drop()

    def reaches(self, received: int) -> bool:
        """Whether every frame that such a peer has missed is still kept."""
        return self.held <= received <= self.sent

    def since(self, received: int) -> list[bytes]:
        """The frames that such a peer has missed."""
        return list(islice(self._frames, received - self.held, None))

    def _drop(self) -> None:
        self._bytes -= len(self._frames.popleft())
