"""Where an answer goes: the HTTP side of one request."""

from typing import Protocol

from controlplane.gateway.ports import ReplayedAnswer
from controlplane.gateway.progress import Trail
from controlplane.gateway.refusal import Refusal


class Out(Protocol):
    """One HTTP response; what it is given is on its way at once."""

    @property
    def started(self) -> bool:
        """Whether anything has reached the client."""

    @property
    def paused(self) -> bool:
        """Whether the client has to read, until `drained`, before more events are sent."""

    async def drained(self) -> None:
        """Wait until the client has read enough; raises ConnectionError where it does not."""

    def refuse(self, refusal: Refusal, trail: Trail) -> None:
        """Answer with an error; as an event, without end mark, where a stream has begun."""

    def event(self, data: bytes, trail: Trail) -> None:
        """Send events; the first call sends status and headers before them."""

    def replay(self, kept: ReplayedAnswer, trail: Trail) -> None:
        """Send an answer that was given before, whole."""

    def end(self, data: bytes, trail: Trail) -> None:
        """Send the last bytes: the end of a stream, or the whole body."""
