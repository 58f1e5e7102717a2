"""How long a request waits for its node to confirm that a cancelled job has ended.

Within a long step a node confirms nothing. Neither the client nor the limiter waits for that; the
charge does, for the last usage, but the hold never expires meanwhile.
"""

import asyncio
from contextlib import suppress

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.stream import JobStream

# Of a hold's grace; the rest is for the charge itself.
CONFIRM_SHARE = 0.5
MICROSECONDS_PER_S = 1_000_000


def stop(stream: JobStream, timers: list[asyncio.TimerHandle], confirm_s: float) -> None:
    """Cancel a job whose outputs nobody wants any more, and wait so long before going on."""
    stream.cancel()
    timers.append(asyncio.get_running_loop().call_later(confirm_s, stream.leave))


async def confirmed(call: Call, stream: JobStream, *, hold_grace_s: int) -> None:
    """Wait until the usage is final, or the hold has to be settled with what is known."""
    elapsed_s = call.elapsed_us() / MICROSECONDS_PER_S
    left_s = call.deadline_s + CONFIRM_SHARE * hold_grace_s - elapsed_s
    with suppress(TimeoutError):
        async with asyncio.timeout(left_s):
            await stream.settled()
