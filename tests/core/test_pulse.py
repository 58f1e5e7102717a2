"""The pulse of an event loop: what blocks it is told, also while it has just begun to move again."""

from __future__ import annotations

import time

from controlplane.core.pulse import BEAT_S, Pulse

BLOCKED_S = 0.2


async def test_a_blocked_loop_says_for_how_long() -> None:
    pulse = Pulse()
    assert pulse.late_s == 0.0
    pulse.start()
    time.sleep(BEAT_S + BLOCKED_S)
    # No beat has run since, yet the one that is due counts.
    assert pulse.late_s >= BLOCKED_S * 0.99
    pulse.stop()
    assert pulse.late_s == 0.0
