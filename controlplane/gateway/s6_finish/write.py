"""Bytes to the client's socket: a layer of its own, so that a slow reader is not taken for us."""

from collections.abc import Awaitable

from controlplane.gateway.call import Call
from controlplane.kernel.spans import INDEX

WRITE = INDEX["s6_finish.write"]


async def write_out(call: Call, sending: Awaitable[None]) -> None:
    """Await a write; its own bound in time ends it where the client stalls."""
    began = call.spans.clock()
    try:
        await sending
    finally:
        call.spans.add(WRITE, began)
