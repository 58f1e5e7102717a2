"""A link outlasts its socket: what a node needs to go on with it over another one.

Both ends count frames from the welcome on and keep those that the other may lack, so that after a
break each sends exactly what did not arrive, and everything else stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from controlplane.gateway.nodes.host import BadClaim
from controlplane.gateway.nodes.limits import CLOSE_REPLACED
from controlplane.kernel.clock import monotonic_s
from inference.contract.codec import encode
from inference.contract.replay import Replay, Resume, Resumed

if TYPE_CHECKING:
    from controlplane.gateway.nodes.link import NodeLink


class LinkSocket(msgspec.Struct, eq=False):
    """One socket of a node; what comes over it once its link has another is not heard.

    `send` and `close` belong to the socket and never block.
    """

    link: NodeLink
    send: Callable[[bytes], None]
    close: Callable[[int, str], None]
    _over: bool = False

    def on_bytes(self, data: bytes) -> None:
        if self._carries:
            self.link.on_bytes(data)

    def on_close(self, reason: str) -> None:
        """It was closed in good order, and the link with it."""
        if self._carries:
            self.link.on_close(reason)
        self._over = True

    def on_break(self, reason: str) -> None:
        if self._carries:
            self.link.on_break(reason)
        self._over = True

    def expel(self, code: int, reason: str) -> None:
        """The node sent something that is no frame."""
        if self._carries:
            self.link.expel(code, reason)

    @property
    def _carries(self) -> bool:
        return not self._over and self.link.session.socket is self


@dataclass(slots=True, eq=False, repr=False)
class Session:
    """What was sent and received since the welcome; `broken_s` is when the socket was lost."""

    socket: LinkSocket
    received: int = 0
    broken_s: float | None = None
    _replay: Replay | None = None

    @property
    def resumable(self) -> bool:
        """The node can go on with it over another socket."""
        return self._replay is not None

    def begin(self) -> None:
        """From here on frames are kept for a node that says it would ask for them."""
        self._replay = Replay()

    def send(self, data: bytes) -> None:
        """Send a frame, or keep it until there is a socket again."""
        if self._replay is not None:
            self._replay.add(data)
        if self.broken_s is None:
            self.socket.send(data)

    def confirm(self, received: int) -> bool:
        """The node has so many of our frames; False if there never were as many."""
        replay = self._replay
        if replay is None:
            return not received
        replay.forget(received)
        return received <= replay.sent

    def resume(self, socket: LinkSocket, frame: Resume, *, seen_s: float) -> float | None:
        """Go on over this socket; returns the seconds for which nothing could be heard, None where
        either end lacks what the other has forgotten. Raises `BadClaim`.
        """
        if not self.confirm(frame.received):
            raise BadClaim(f"resume.received: {frame.received} were never sent")
        replay = self._replay
        if replay is None or not replay.reaches(frame.received) or frame.held > self.received:
            return None
        if self.broken_s is None:
            self.socket.close(CLOSE_REPLACED, "the node goes on over another socket")
        # A break that was not noticed began after the node was last heard.
        away_s = monotonic_s() - (seen_s if self.broken_s is None else self.broken_s)
        self.socket, self.broken_s = socket, None
        for data in (encode(Resumed(received=self.received)), *replay.since(frame.received)):
            socket.send(data)
        return away_s

    def lose_socket(self) -> None:
        self.broken_s = monotonic_s()
