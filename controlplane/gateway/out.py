"""Where an answer goes: the ASGI side of one request."""

from typing import Protocol

from controlplane.gateway.ports import ReplayedAnswer
from controlplane.gateway.progress import Trail
from controlplane.gateway.refusal import Refusal


class Out(Protocol):
    """One HTTP response."""

    @property
    def started(self) -> bool:
        """Whether anything has reached the client."""

    async def refuse(self, refusal: Refusal, trail: Trail) -> None:
        """Answer with an error; as an event, without end mark, where a stream has begun."""

    async def event(self, data: bytes, trail: Trail) -> None:
        """Send events; the first call sends status and headers before them."""

    async def replay(self, kept: ReplayedAnswer, trail: Trail) -> None:
        """Send an answer that was given before, whole."""

    async def end(self, data: bytes, trail: Trail) -> None:
        """Send the last bytes: the end of a stream, or the whole body."""
