"""Ending tasks of an event loop."""

import asyncio

CANCEL_AGAIN_S = 1.0


async def end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait until it is over, however it ends; what it does then takes less than a
    second.

    It is asked each second: `asyncio.wait_for` of Python 3.11 loses a cancellation that meets its
    result (https://github.com/python/cpython/issues/86296), and redis-py sends with it.
    """
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
