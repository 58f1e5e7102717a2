"""Bytes to the client's socket: a layer of its own, so that a slow reader is not taken for us."""

from typing import Any, Protocol

from controlplane.gateway.call import Call
from controlplane.kernel.spans import INDEX

WRITE = INDEX["s6_finish.write"]


class EventOut(Protocol):
    """As in `out.py`."""

    def event(self, data: bytes, trail: Any) -> None:
        """Send events."""

    async def drained(self) -> None:
        """Wait until the client has read enough."""


def write_out(call: Call, out: EventOut, data: bytes, trail: object) -> None:
    """Send events, at once."""
    began = call.spans.clock()
    out.event(data, trail)
    call.spans.add(WRITE, began)


async def wait_for_reader(call: Call, out: EventOut) -> None:
    """Wait while the client is behind; a bound in time ends it where it stalls."""
    began = call.spans.clock()
    try:
        await out.drained()
    finally:
        call.spans.add(WRITE, began)
