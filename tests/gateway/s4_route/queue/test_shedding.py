"""Who may wait: bounds, estimates against deadlines, and who makes way for whom."""

from __future__ import annotations

import pytest

from controlplane.gateway.s4_route.queue import waiting as waiting_requests
from controlplane.gateway.s4_route.queue.model_queue import (
    RETURNS_AGE_S_MAX,
    RETURNS_MIN,
    ReleaseRate,
)
from controlplane.gateway.s4_route.queue.queue import FairQueue
from controlplane.gateway.s4_route.queue.request import NoRoom, QueuedRequest
from controlplane.kernel.rules import PRIORITY_HIGH, PRIORITY_LOW
from tests.gateway.s4_route.queue.test_turns import LANE, claim, enter


def refused(queue: FairQueue, wanted: QueuedRequest, now_s: float = 0.0) -> NoRoom:
    """Why a request may not wait."""
    with pytest.raises(NoRoom) as caught:
        queue.enter(LANE, wanted, now_s)
    return caught.value


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> FairQueue:
    monkeypatch.setattr(waiting_requests, "WAITING_MAX", 4)
    monkeypatch.setattr(waiting_requests, "WAITING_TOKENS_MAX", 1_000)
    return FairQueue()


def paced(queue: FairQueue, *, turns_per_s: float, now_s: float = 0.0) -> float:
    """A queue that has measured this pace, and the time by then."""
    for _ in range(200):
        queue.enter(LANE, claim("pace"), now_s)
        now_s += 1 / turns_per_s
        queue.next([LANE], now_s)
    return now_s


def test_a_full_queue_refuses_its_equals(small: FairQueue) -> None:
    enter(small, LANE, *(claim() for _ in range(4)))
    error = refused(small, claim())
    assert (error.reason, error.position, len(small)) == ("full", 4, 4)


def test_higher_priority_displaces_the_lowest(small: FairQueue) -> None:
    orders = [(1, None), (0, 5), (0, 2), (1, 1)]
    tickets = enter(small, LANE, *(claim(priority=p, degrade_order=d) for p, d in orders))
    gone = []
    for _ in range(4):
        _, evicted = small.enter(LANE, claim("b", priority=PRIORITY_HIGH), 0.0)
        gone += evicted
        assert len(small) == 4
    assert gone == [tickets[2], tickets[1], tickets[3], tickets[0]]
    assert refused(small, claim("c", priority=PRIORITY_LOW)).reason == "full"


def test_a_tenant_that_fills_the_queue_does_not_keep_others_out(small: FairQueue) -> None:
    flood = enter(small, LANE, *(claim("a") for _ in range(4)))
    assert refused(small, claim("a")).reason == "full"
    _, evicted = small.enter(LANE, claim("b"), 0.0)
    assert evicted == flood[-1:]
    _, evicted = small.enter(LANE, claim("c"), 0.0)
    assert evicted == [flood[-2]]
    # Two of a, one of b, one of c: nobody has more than b would have.
    assert refused(small, claim("b")).reason == "full"


def test_tokens_are_bounded_too(small: FairQueue) -> None:
    first, _ = enter(small, LANE, claim("a", work=600), claim("a", work=300))
    error = refused(small, claim("a", work=200))
    assert (error.reason, len(small)) == ("full", 2)
    _, evicted = small.enter(LANE, claim("b", work=700, priority=PRIORITY_HIGH), 0.0)
    assert evicted[-1:] == [first] and len(small) == 1


def test_one_that_is_too_large_alone_may_wait_alone(small: FairQueue) -> None:
    (ticket,) = enter(small, LANE, claim(work=5_000))
    assert ticket.waiting
    assert refused(small, claim(work=1)).reason == "full"


def test_who_will_not_wait_is_refused_at_once() -> None:
    assert refused(FairQueue(), claim(queue_s=0.0)).reason == "late"
    assert refused(FairQueue(), claim(deadline_s=0.0)).reason == "late"


def test_nothing_measured_refuses_nobody() -> None:
    queue = FairQueue()
    tickets = enter(queue, LANE, *(claim(queue_s=0.001) for _ in range(100)))
    assert all(ticket.wait_s is None for ticket in tickets)


def test_a_wait_beyond_the_deadline_is_refused_at_arrival() -> None:
    queue = FairQueue()
    now = paced(queue, turns_per_s=10.0)
    enter(queue, LANE)
    for number in range(19):
        ticket = queue.enter(LANE, claim(queue_s=2.0), now).ticket
        assert ticket.wait_s == pytest.approx((number + 1) / 10, rel=0.01)
    queue.enter(LANE, claim(queue_s=2.01), now)
    for late in (claim(queue_s=2.0), claim(deadline_s=2.0)):
        error = refused(queue, late, now)
        assert (error.reason, error.position) == ("late", 20)
        assert error.wait_s == pytest.approx(2.1, rel=0.01)
    # A tenant whose turn comes sooner is in time, and so is a higher class.
    assert queue.enter(LANE, claim("b", queue_s=2.0), now).ticket.position <= 1
    assert queue.enter(LANE, claim(priority=PRIORITY_HIGH, queue_s=0.2), now).ticket.position == 0


def test_routes_that_degrade_sooner_make_way() -> None:
    queue = FairQueue()
    now = paced(queue, turns_per_s=1.0)
    orders = (2, 1, 1, None, 2)
    two, old, new, _, _ = [
        queue.enter(LANE, claim(degrade_order=order), now).ticket for order in orders
    ]
    last = claim(queue_s=4.1)
    _, evicted = queue.enter(LANE, last, now)
    assert evicted == [new, old]
    assert len(queue) == 4 and two.waiting
    error = refused(queue, claim(queue_s=1.0), now)
    assert error.reason == "late"
    assert len(queue) == 4


def test_a_fleet_that_falls_silent_gets_slower_by_the_second() -> None:
    returns = ReleaseRate()
    returns.began(0.0)
    for number in range(1, 101):
        returns.returned(number * 0.1)
    assert returns.wait_s(10, 10.0, waiting=True) == pytest.approx(1.0, rel=0.01)
    assert (returns.wait_s(10, 40.0, waiting=True) or 0.0) > 9.0
    assert returns.wait_s(10, 40.0, waiting=False) == pytest.approx(1.0, rel=0.01)


def test_time_in_which_nobody_waited_is_not_measured() -> None:
    returns = ReleaseRate()
    for number in range(100):
        returns.began(number * 10.0)
        returns.returned(number * 10.0 + 0.1)
    assert returns.wait_s(1, 1_000.0, waiting=False) == pytest.approx(0.1, rel=0.01)


def test_what_was_measured_long_ago_is_forgotten() -> None:
    returns = ReleaseRate()
    for number in range(RETURNS_MIN):
        assert returns.wait_s(1, 0.0, waiting=True) is None
        returns.returned(float(number))
    assert returns.wait_s(1, 10.0, waiting=True) is not None
    returns.began(RETURNS_AGE_S_MAX + 10.0)
    assert returns.wait_s(1, RETURNS_AGE_S_MAX + 10.0, waiting=True) is None
