"""Bounds follow what was observed, between a floor and a cap; retries are a share of requests."""

from __future__ import annotations

import random

import pytest

from controlplane.gateway.nodes.measured.retries import (
    PAUSE_S_MAX,
    RETRIES_PER_S,
    RETRIES_SAVED_MAX,
    RETRY_SHARE,
    RetryBudget,
    pause_s,
)
from controlplane.gateway.nodes.measured.times import (
    FACTOR,
    FRESH_FOR,
    KNOWN_MIN,
    RECENT_MAX,
    SAMPLES,
    Bound,
    FirstToken,
    Spread,
    Times,
)
from tests.support.clock import Clock, clock

__all__ = ["clock"]

BOUND = Bound(floor_s=2.0, cap_s=30.0)


def spread_of(seconds: float, count: int = SAMPLES) -> Spread:
    spread = Spread()
    for _ in range(count):
        spread.record(seconds)
    return spread


def test_while_little_is_known_the_cap_holds() -> None:
    assert BOUND.of(Spread()) == BOUND.cap_s
    assert BOUND.of(spread_of(0.01, KNOWN_MIN - 1)) == BOUND.cap_s
    assert BOUND.of(spread_of(0.01, KNOWN_MIN)) == BOUND.floor_s


@pytest.mark.parametrize(("usual_s", "bound_s"), [(0.01, 2.0), (2.0, 8.0), (60.0, 30.0)])
def test_the_bound_is_a_multiple_within_floor_and_cap(usual_s: float, bound_s: float) -> None:
    assert BOUND.of(spread_of(usual_s)) == pytest.approx(bound_s, rel=0.02)


def test_work_that_stands_before_a_job_is_added() -> None:
    spread = spread_of(1.0)
    assert BOUND.of(spread, ahead_s=0.5) == pytest.approx(FACTOR * 1.5, rel=0.02)


def test_what_was_long_ago_is_forgotten_and_a_rare_pause_is_not_the_rule() -> None:
    spread = spread_of(5.0)
    for _ in range(2 * SAMPLES):
        spread.record(0.001)
    assert BOUND.of(spread) == BOUND.floor_s
    spread.record(20.0)
    for _ in range(FRESH_FOR):
        spread.record(0.001)
    assert BOUND.of(spread) == BOUND.floor_s


def test_a_long_prompt_is_no_slow_node() -> None:
    rate = 1_000.0
    short, long = Times(), Times()
    for _ in range(RECENT_MAX):
        assert short.stretch(rate) is None
        short.began(FirstToken(0.15, 100))
        long.began(FirstToken(8.05, 8_000))
    assert short.stretch(rate) == pytest.approx(1.0)
    assert long.stretch(rate) == pytest.approx(1.0)


def test_retries_are_a_share_of_requests_beside_a_few_each_second(clock: Clock) -> None:
    budget = RetryBudget()
    while budget.withdraw():
        pass
    for _ in range(1_000):
        budget.deposit()
    granted = sum(budget.withdraw() for _ in range(1_000))
    assert granted == pytest.approx(1_000 * RETRY_SHARE, abs=1)
    clock.pass_s(2.0)
    assert sum(budget.withdraw() for _ in range(1_000)) == pytest.approx(2 * RETRIES_PER_S, abs=1)
    clock.pass_s(1e9)
    assert sum(budget.withdraw() for _ in range(2_000)) == RETRIES_SAVED_MAX


def test_pauses_are_anywhere_up_to_a_bound_that_grows() -> None:
    random.seed(7)
    pauses = [[pause_s(failures) for _ in range(200)] for failures in (1, 2, 3, 40)]
    assert all(0 <= pause <= PAUSE_S_MAX for some in pauses for pause in some)
    highest = [max(some) for some in pauses]
    assert highest == sorted(highest)
    assert min(min(some) for some in pauses) < 0.002
