"""When a node gets no work, when it gets some again, and that somebody always gets it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from controlplane.gateway.nodes.measured.breaker import (
    EJECT_JITTER,
    EJECT_S_MAX,
    EJECTED_SHARE_MAX,
    FAILURES_IN_A_ROW_MAX,
    OUTCOMES_MIN,
    PROBES_MAX,
    Breaker,
    BreakerState,
    Cause,
    admitted,
)
from tests.support.clock import Clock, clock

__all__ = ["clock"]

EJECT_S = 10.0
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


def make_breaker() -> Breaker:
    return Breaker("node", eject_s=EJECT_S, changed=lambda: None)


def fail_open(breaker: Breaker) -> None:
    for _ in range(FAILURES_IN_A_ROW_MAX):
        breaker.failed()
    assert breaker.state is OPEN


def close(breaker: Breaker) -> None:
    breaker.probe()
    for _ in range(PROBES_MAX):
        breaker.answered()
    assert breaker.state is CLOSED


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not(clock: Clock) -> None:
    breaker = make_breaker()
    for _ in range(FAILURES_IN_A_ROW_MAX - 1):
        breaker.failed()
    breaker.succeeded()
    for _ in range(FAILURES_IN_A_ROW_MAX - 1):
        breaker.failed()
    assert breaker.state is CLOSED
    breaker.failed()
    assert (breaker.state, breaker.cause) == (OPEN, Cause.FAILURES)


def test_a_share_of_failures_opens_it_without_a_row_of_them(clock: Clock) -> None:
    breaker = make_breaker()
    for _ in range(OUTCOMES_MIN // 2):
        assert breaker.state is CLOSED
        breaker.succeeded()
        breaker.failed()
    assert breaker.state is OPEN


def test_a_few_answers_close_it_and_one_failure_opens_it_again_for_longer(clock: Clock) -> None:
    breaker = make_breaker()
    fail_open(breaker)
    clock.pass_s(EJECT_S * (1 - EJECT_JITTER) - 0.1)
    breaker.tick()
    assert breaker.state is OPEN
    clock.pass_s(EJECT_S * 2 * EJECT_JITTER + 0.2)
    breaker.tick()
    assert breaker.state is HALF_OPEN
    for _ in range(PROBES_MAX - 1):
        breaker.answered()
    breaker.failed()
    assert (breaker.state, breaker.ejections) == (OPEN, 2)
    assert breaker.facts.left_s > EJECT_S * (1 + EJECT_JITTER)
    close(breaker)


def test_the_time_out_grows_up_to_a_bound_and_is_forgotten(clock: Clock) -> None:
    breaker = make_breaker()
    for _ in range(100):
        fail_open(breaker)
        close(breaker)
    fail_open(breaker)
    assert breaker.facts.left_s >= EJECT_S_MAX * (1 - EJECT_JITTER)
    assert breaker.facts.left_s <= EJECT_S_MAX * (1 + EJECT_JITTER)
    close(breaker)
    clock.pass_s(EJECT_S_MAX + 1)
    fail_open(breaker)
    assert breaker.ejections == 1


def test_one_that_stands_still_is_waited_for(clock: Clock) -> None:
    breaker = make_breaker()
    breaker.eject(Cause.STALLED)
    clock.pass_s(EJECT_S_MAX * 2)
    breaker.tick()
    assert breaker.state is OPEN
    breaker.probe()
    assert breaker.state is HALF_OPEN


def test_having_stood_still_keeps_no_node_out_for_longer(clock: Clock) -> None:
    breaker = make_breaker()
    for _ in range(5):
        breaker.eject(Cause.STALLED)
        close(breaker)
    breaker.eject(Cause.SLOW)
    assert breaker.ejections == 1
    clock.pass_s(EJECT_S * (1 + EJECT_JITTER))
    breaker.tick()
    assert breaker.state is HALF_OPEN


@dataclass(eq=False)
class Guarded:
    breaker: Breaker


def make_nodes(count: int) -> list[Guarded]:
    return [Guarded(make_breaker()) for _ in range(count)]


@pytest.mark.parametrize("cause", [Cause.FAILURES, Cause.SLOW, Cause.STALLED])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_some_node_is_always_left(clock: Clock, count: int, cause: Cause) -> None:
    nodes = make_nodes(count)
    for node in nodes:
        assert admitted(nodes)
        clock.pass_s(1.0)
        node.breaker.eject(cause)
    assert admitted(nodes)


def test_no_more_than_a_share_is_ejected_and_the_first_stay_out(clock: Clock) -> None:
    nodes = make_nodes(8)
    for node in nodes[:6]:
        clock.pass_s(1.0)
        node.breaker.eject(Cause.FAILURES)
    out = int(8 * EJECTED_SHARE_MAX)
    assert admitted(nodes) == nodes[out:]


def test_those_that_stand_still_are_out_beside_the_share(clock: Clock) -> None:
    nodes = make_nodes(8)
    for node in nodes[:6]:
        node.breaker.eject(Cause.STALLED)
    nodes[6].breaker.eject(Cause.SLOW)
    assert admitted(nodes) == nodes[7:]
