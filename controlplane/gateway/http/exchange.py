"""One HTTP request and its answer, as the server of connections hands them to the gateway."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from controlplane.gateway.http.round_trip import RoundTrip


class Incoming(Protocol):
    """What is asked, and where. `more_body`: some of it is still to come.

    `on_gone` is called as the client leaves before its answer was complete.
    """

    path: str
    more_body: bool
    on_gone: Callable[[], None] | None

    def take(self) -> bytes:
        """What of the body is here and was not taken yet."""

    async def more(self) -> bytes:
        """The same once more is here, or all; nothing where the client leaves instead."""


class Exchange(Incoming, Protocol):
    """What one turn of the loop sends goes out in one write, at its end; nothing does once the
    client has left.

    `path` is without its `query`; names of `headers` are in lower case. `disconnected`: the client
    left before its answer was complete. A connection that is not to `keep_alive` ends with this
    answer. `lines` of an answer are `name: value`.
    """

    method: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    peer: str
    round_trip: RoundTrip
    disconnected: bool
    keep_alive: bool

    def answer(self, status: int, lines: list[str], body: bytes) -> None:
        """Send a whole answer, whose length is among `lines`."""

    def begin(self, status: int, lines: list[str], data: bytes, *, last: bool = False) -> None:
        """Send the head of a stream and its first bytes."""

    def write(self, data: bytes, *, last: bool = False) -> None:
        """Send more of a stream, and its end behind the last."""

    @property
    def paused(self) -> bool:
        """Whether so much waits for the client that nothing is to be sent before `drained`."""

    async def drained(self) -> None:
        """Wait until the client has read enough, or has left."""


class Answering(Protocol):
    """The gateway as the server of connections knows it."""

    def answer(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """Answer one request."""
