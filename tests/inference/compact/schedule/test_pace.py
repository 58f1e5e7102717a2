"""What is learned of steps, and how many prompt tokens the next one gets for it."""

from __future__ import annotations

import random

import pytest

from inference.compact.options import CompactOptions
from inference.compact.schedule.pace import (
    ALONE,
    MIXED_MS_MAX,
    MIXED_MS_MIN,
    PLAIN_STEPS,
    SLOWED,
    US_PER_MS,
    Pace,
)

PLAIN_US, TOKEN_US, PLACE_US = 8_000, 100.0, 0.25


def _pace(steps: int = 400, noise: float = 0.0) -> Pace:
    """After so many steps of a machine with these costs."""
    draw = random.Random(1)
    pace = Pace(CompactOptions(mixed_ms=40))
    for number in range(steps):
        count, start = draw.randint(1, 200), draw.randint(0, 3_000)
        took = PLAIN_US
        if prompts := [(count, start)] if number % 2 else []:
            took += int(count * (TOKEN_US + PLACE_US * (start + count / 2)))
        pace.note(1, prompts, int(took * draw.uniform(1 - noise, 1 + noise)))
    return pace


def test_nothing_is_known_before_the_first_step() -> None:
    assert Pace(CompactOptions()).token_us(0) == 0


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_token_costs_more_the_later_its_place(noise: float) -> None:
    pace = _pace(noise=noise)
    near = 0.01 + 2 * noise
    assert pace.token_us(0) == pytest.approx(TOKEN_US, rel=near)
    assert pace.token_us(2_000) == pytest.approx(TOKEN_US + 2_000 * PLACE_US, rel=near)


def test_steps_that_are_all_alike_give_one_cost() -> None:
    pace = Pace(CompactOptions())
    for _ in range(50):
        pace.note(1, [(100, 500)], 30_000)
    assert pace.token_us(0) == pace.token_us(4_000) == pytest.approx(300)


def test_the_bound_is_for_the_whole_step_and_longer_for_one_alone() -> None:
    pace = _pace()
    assert pace.room_us(1, alone=False) == pytest.approx(40_000 - PLAIN_US)
    assert pace.room_us(1, alone=True) == pytest.approx(ALONE * 40_000 - PLAIN_US)


def test_prompts_get_on_where_a_step_alone_takes_longer_than_the_bound() -> None:
    pace = Pace(CompactOptions(mixed_ms=40))
    pace.note(1, [], 300_000)
    assert pace.room_us(1, alone=False) == (SLOWED - 1) * 300_000


@pytest.mark.parametrize(
    ("plain_us", "step_us"),
    [
        (300, MIXED_MS_MIN * US_PER_MS),
        (3_000, PLAIN_STEPS * 3_000),
        (15_000, MIXED_MS_MAX * US_PER_MS),
        (100_000, SLOWED * 100_000),
    ],
)
def test_without_a_bound_it_follows_what_a_step_without_prompts_takes(
    plain_us: int, step_us: int
) -> None:
    pace = Pace(CompactOptions())
    pace.note(1, [], plain_us)
    assert pace.room_us(1, alone=False) == pytest.approx(step_us - plain_us)


def test_a_step_that_decodes_more_may_take_longer() -> None:
    """Each token that is decoded has a cost of its own, learned from steps without prompts."""
    pace = Pace(CompactOptions())
    for number in range(100):
        decoded = 1 + number % 20
        pace.note(decoded, [], 1_000 + 50 * decoded)
    for decoded, plain_us in ((10, 1_500), (50, 3_500)):
        step_us = PLAIN_STEPS * plain_us
        assert pace.room_us(decoded, alone=False) == pytest.approx(step_us - plain_us)
    # What decoding takes of a step with prompts is not charged to these.
    pace.note(40, [(100, 0)], 13_000)
    assert pace.token_us(0) == pytest.approx(100)
