"""Bytes to the client's socket: a layer of its own, so that a slow reader is not taken for us."""

from typing import Any, Protocol

from controlplane.gateway.call import Call
from controlplane.kernel.spans import INDEX

WRITE = INDEX["s6_finish.write"]


class EventOut(Protocol):
    """Of `out.py` what events need."""

    def event(self, data: bytes, trail: Any) -> None: ...

    @property
    def paused(self) -> bool: ...

    async def drained(self) -> None: ...


async def write_out(call: Call, out: EventOut, data: bytes, trail: object) -> None:
    """Send events, and wait where the client is behind; a bound in time ends it where it stalls."""
    began = call.spans.clock()
    try:
        out.event(data, trail)
        if out.paused:
            await out.drained()
    finally:
        call.spans.add(WRITE, began)
