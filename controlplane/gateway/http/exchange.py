"""One HTTP request and its answer, as the server of connections hands them to the gateway."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from controlplane.gateway.round_trip import RoundTrip


class Exchange(Protocol):
    """What is sent goes out at once, in one write; nothing does once the client has gone.

    Names of `headers` are in lower case; `path` is without its query. `lines` of an answer are
    `name: value`. A connection whose `keep_alive` is off ends with this answer, and says so.
    """

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    peer: str
    round_trip: RoundTrip
    keep_alive: bool
    # Called when the client leaves before its answer is complete; never where it had left before.
    on_gone: Callable[[], None] | None

    @property
    def gone(self) -> bool:
        """Whether the client left before its answer was complete."""

    @property
    def whole(self) -> bool:
        """Whether all of the body is here, or taken."""

    def take(self) -> bytes:
        """What of the body is here and was not taken yet."""

    async def more(self) -> None:
        """Wait until more of the body is here, or all, or the client has gone."""

    def answer(self, status: int, lines: list[str], body: bytes) -> None:
        """Send a whole answer, whose length is among `lines`."""

    def begin(self, status: int, lines: list[str], data: bytes, *, last: bool = False) -> None:
        """Send the head of a stream and its first bytes."""

    def send(self, data: bytes, *, last: bool = False) -> None:
        """Send more of a stream, and its end behind the last."""

    @property
    def paused(self) -> bool:
        """Whether so much waits for the client that nothing is to be sent before `drained`."""

    async def drained(self) -> None:
        """Wait until the client has read enough, or has gone."""


class Answering(Protocol):
    """The gateway as the server of connections knows it."""

    def answer(self, exchange: Exchange) -> Coroutine[Any, Any, None]:
        """Answer one request."""
