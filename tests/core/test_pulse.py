"""The pulse of an event loop: how long something blocked it is told as soon as it moves again."""

from __future__ import annotations

import time

from controlplane.core.jobs.pulse import BEAT_S, Pulse

BLOCKED_S = 0.2


def block() -> None:
    """What no part of a gateway may do."""
    time.sleep(BEAT_S + BLOCKED_S)


async def test_a_blocked_loop_says_for_how_long() -> None:
    pulse = Pulse()
    assert pulse.late_s == 0.0
    pulse.start()
    block()
    # No beat has run since, yet the one that is due counts.
    assert pulse.late_s >= BLOCKED_S * 0.99
    pulse.stop()
    assert pulse.late_s == 0.0
