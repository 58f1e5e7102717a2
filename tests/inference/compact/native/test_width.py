"""Threads per step follow from how much time the caller loses."""

from __future__ import annotations

from inference.compact.native.width import (
    CALM_STEPS,
    LOST_SHARE_MAX,
    NARROW_STEPS_MAX,
    NARROW_STEPS_MIN,
    Width,
)

STEP_NS = 1_000_000
LOST_NS = int(STEP_NS * LOST_SHARE_MAX * 2)


def _narrow_steps(width: Width) -> int:
    """Steps on one thread from now on, until all are tried again."""
    count = 0
    while width.threads() == 1:
        width.note(0, STEP_NS)
        count += 1
    return count


def test_all_threads_while_nobody_is_in_the_way() -> None:
    width = Width(2)
    for _ in range(1000):
        assert width.threads() == 2
        width.note(STEP_NS // 10, STEP_NS)


def test_one_late_step_among_many_changes_nothing() -> None:
    width = Width(2)
    for number in range(200):
        width.note(STEP_NS if number % 20 == 19 else 0, STEP_NS)
        assert width.threads() == 2


def test_waiting_much_makes_it_narrow_for_longer_and_longer() -> None:
    width = Width(4)
    pauses = []
    for _ in range(9):
        width.note(LOST_NS, STEP_NS)
        assert width.threads() == 1
        pauses.append(_narrow_steps(width))
        assert width.threads() == 4
    assert pauses[:3] == [NARROW_STEPS_MIN, 2 * NARROW_STEPS_MIN, 4 * NARROW_STEPS_MIN]
    assert pauses[-1] == NARROW_STEPS_MAX


def test_calm_makes_the_next_pause_short_again() -> None:
    width = Width(2)
    for _ in range(5):
        width.note(LOST_NS, STEP_NS)
        assert _narrow_steps(width)
    for _ in range(CALM_STEPS):
        width.note(0, STEP_NS)
    width.note(100 * STEP_NS, STEP_NS)
    assert _narrow_steps(width) == NARROW_STEPS_MIN
