"""Lines of batches keep out of the way of requests that come one after the other."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.gateway.batches import runner
from controlplane.gateway.batches.runner import OTHERS_S, LineStarts

PER_S = 4.0


class Clock:
    """Time that passes when it is moved; who sleeps moves it as well."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def move(self, seconds: float) -> None:
        self.now_s += seconds

    async def sleep(self, seconds: float) -> None:
        self.move(seconds)

    async def begun(self, starts: LineStarts, seconds: float) -> int:
        """How many lines begin in this time, a hundredth of a second after each other at least."""
        until_s, begun = self.now_s + seconds, 0
        while True:
            await starts.wait()
            if self.now_s >= until_s:
                return begun
            starts.began(1)
            begun += 1
            self.move(0.01)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(runner, "monotonic_s", lambda: made.now_s)
    monkeypatch.setattr(asyncio, "sleep", made.sleep)
    return made


async def test_beside_others_lines_begin_at_their_pace_and_alone_at_once(
    clock: Clock,
) -> None:
    served = [0]
    starts = LineStarts(lambda: served[0], PER_S)
    assert await clock.begun(starts, 1.0) >= 99
    served[0] += 1
    assert await clock.begun(starts, OTHERS_S) <= PER_S * OTHERS_S + 1
    clock.move(OTHERS_S)
    assert not starts.others_came()
    starts.note_others()
    assert starts.others_came()
    assert await clock.begun(starts, OTHERS_S) <= PER_S * OTHERS_S + 1
    clock.move(OTHERS_S)
    assert await clock.begun(starts, 1.0) >= 99
