"""Waiting for something to become true: in a loop, and in a thread."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable

# How long is no claim: it is for a machine on which much else runs.
UNTIL_S_MAX = 60.0
# Eleven processes start together on two cores, which others may use, too.
WAIT_S_MAX = 90.0
# What waits takes the time of what it waits for: it looks less often the longer it has waited, and
# a look that takes long is followed by a longer pause.
POLL_S, POLL_S_MAX = 0.005, 0.1
WAITED_PART, LOOK_TIMES = 1 / 32, 4


async def until(true: Callable[[], object], within_s: float = UNTIL_S_MAX) -> float:
    """Look until it, or what it awaits, is true; returns the seconds to the last look's begin.

    Raises TimeoutError, as does `wait_for`.
    """
    began_s = time.monotonic()
    while True:
        waited_s = time.monotonic() - began_s
        seen = true()
        if await seen if inspect.isawaitable(seen) else seen:
            return waited_s
        if waited_s > within_s:
            raise TimeoutError(f"not true within {within_s:g} s")
        await asyncio.sleep(_pause_s(began_s, waited_s))


def wait_for(
    true: Callable[[], object], what: str = "such change", within_s: float = WAIT_S_MAX
) -> float:
    """The same where no loop is held up, with a name for what is waited for."""
    began_s = time.monotonic()
    while True:
        waited_s = time.monotonic() - began_s
        if true():
            return waited_s
        if waited_s > within_s:
            raise TimeoutError(f"no {what} within {within_s:g} s")
        time.sleep(_pause_s(began_s, waited_s))


def _pause_s(began_s: float, waited_s: float) -> float:
    look_s = time.monotonic() - began_s - waited_s
    return max(POLL_S, min(POLL_S_MAX, max(waited_s * WAITED_PART, look_s * LOOK_TIMES)), look_s)
