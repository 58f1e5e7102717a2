"""Whose turn it is: shares of tenants, classes, arrival order, and nobody for ever last."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.s4_route.queue.model_queue import PASSED_OVER_MAX
from controlplane.gateway.s4_route.queue.queue import FairQueue
from controlplane.gateway.s4_route.queue.request import QueuedRequest, QueueEntry, QueueLane
from controlplane.kernel.rules import PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_NORMAL

LANE = QueueLane("m", "default", "eu")
OTHER = QueueLane("n", "default", "eu")


def claim(tenant: str = "a", work: int = 100, **changes: object) -> QueuedRequest:
    """A patient request."""
    fields: dict[str, object] = {"queue_s": 600.0, "deadline_s": 600.0, **changes}
    return QueuedRequest(tenant=tenant, work_tokens=work, **fields)  # type: ignore[arg-type]


def enter(queue: FairQueue, lane: QueueLane = LANE, *claims: QueuedRequest) -> list[QueueEntry]:
    """All of them wait, in this order."""
    return [queue.enter(lane, each, 0.0).ticket for each in claims]


def drained(queue: FairQueue, *lanes: QueueLane) -> list[QueueEntry]:
    """Everyone in turn."""
    found = []
    while (ticket := queue.next(lanes, 0.0)) is not None:
        found.append(ticket)
    return found


def tenants(tickets: list[QueueEntry]) -> str:
    """Their tenants in order."""
    return "".join(ticket.claim.tenant for ticket in tickets)


def test_a_tenant_is_served_in_order_of_arrival() -> None:
    queue = FairQueue()
    tickets = enter(queue, LANE, *(claim(work=work) for work in (500, 1, 90, 4)))
    assert [ticket.position for ticket in tickets] == [0, 1, 2, 3]
    assert drained(queue, LANE) == tickets
    assert len(queue) == 0


def test_a_flood_delays_another_tenants_request_by_one_turn_at_most() -> None:
    queue = FairQueue()
    enter(queue, LANE, *(claim("a", work=8_000) for _ in range(500)))
    first = queue.next([LANE], 0.0)
    (single,) = enter(queue, LANE, claim("b", work=10))
    assert single.position <= 1
    turns = [queue.next([LANE], 0.0), queue.next([LANE], 0.0)]
    assert single in turns and first is not None and first.claim.tenant == "a"


def test_work_that_did_not_have_to_wait_counts_too() -> None:
    queue = FairQueue()
    for _ in range(20):
        queue.passes(LANE[:3], claim("a"))
    enter(queue, LANE, *(claim("a") for _ in range(3)), claim("b"))
    assert tenants(drained(queue, LANE)) == "baaa"


def test_a_weight_buys_its_share() -> None:
    queue = FairQueue()
    enter(queue, LANE, *(claim("a", weight=3) for _ in range(60)))
    enter(queue, LANE, *(claim("b") for _ in range(60)))
    assert Counter(tenants(drained(queue, LANE)[:40])) == {"a": 30, "b": 10}


WORKS = st.lists(st.integers(1, 5_000), min_size=2, max_size=40)


@given(
    st.lists(st.tuples(st.integers(1, 100), WORKS), min_size=2, max_size=5),
    st.randoms(use_true_random=False),
)
def test_over_any_interval_backlogged_tenants_work_differs_by_one_request_of_each(
    wanted: list[tuple[int, list[int]]], random: object
) -> None:
    """The theorem of start-time fair queueing, for every pair and every interval."""
    queue = FairQueue()
    claims = [
        claim(str(number), work=work, weight=weight)
        for number, (weight, works) in enumerate(wanted)
        for work in works
    ]
    random.shuffle(claims)  # type: ignore[attr-defined]
    enter(queue, LANE, *claims)
    left = Counter(each.tenant for each in claims)
    most = {each.tenant: 0.0 for each in claims}
    for each in claims:
        most[each.tenant] = max(most[each.tenant], each.charge)
    done: dict[str, float] = dict.fromkeys(left, 0.0)
    history = [dict(done)]
    for ticket in drained(queue, LANE):
        done[ticket.claim.tenant] += ticket.claim.charge
        left[ticket.claim.tenant] -= 1
        history.append(dict(done))
        if not left[ticket.claim.tenant]:
            break
    for one, other in combinations(most, 2):
        gaps = [at[one] - at[other] for at in history]
        assert max(gaps) - min(gaps) <= (most[one] + most[other]) * (1 + 1e-9)


def test_higher_classes_go_first() -> None:
    queue = FairQueue()
    low, normal, high = enter(
        queue, LANE, *(claim(priority=each) for each in (PRIORITY_LOW, PRIORITY_NORMAL, 2))
    )
    assert drained(queue, LANE) == [high, normal, low]


def test_no_class_is_passed_over_for_ever() -> None:
    queue = FairQueue()
    low, normal = enter(queue, LANE, claim(priority=PRIORITY_LOW), claim())
    turns = []
    for _ in range(3 * PASSED_OVER_MAX):
        enter(queue, LANE, claim("b", priority=PRIORITY_HIGH))
        turns.append(queue.next([LANE], 0.0))
    assert turns.index(normal) == PASSED_OVER_MAX
    assert turns.index(low) == PASSED_OVER_MAX + 1


def test_lanes_of_a_line_share_their_tenants_turns() -> None:
    """A tenant gains nothing by asking in two ways; a node serves only the lanes it can."""
    queue = FairQueue()
    grammar = LANE._replace(needs=("grammar",))
    enter(queue, LANE, *(claim("a") for _ in range(4)))
    enter(queue, grammar, *(claim("a") for _ in range(4)))
    enter(queue, LANE, *(claim("b") for _ in range(4)))
    order = tenants(drained(queue, LANE, grammar))
    assert order[:8].count("b") == 4
    (only,) = enter(queue, grammar, claim("a"))
    assert queue.next([LANE], 0.0) is None
    assert queue.next([grammar], 0.0) is only


def test_models_on_the_same_node_take_turns() -> None:
    queue = FairQueue()
    enter(queue, LANE, *(claim("a") for _ in range(50)))
    queue.next([LANE, OTHER], 0.0)
    (single,) = enter(queue, OTHER, claim("b"))
    assert queue.next([LANE, OTHER], 0.0) is single


def test_who_was_held_up_does_not_catch_up_at_others_cost() -> None:
    """A lane whose nodes are gone falls behind; when they are back, its tenant gets no burst."""
    queue = FairQueue()
    rare = LANE._replace(needs=("rare",))
    enter(queue, rare, *(claim("a") for _ in range(20)))
    enter(queue, LANE, *(claim("b") for _ in range(60)))
    for _ in range(40):
        queue.next([LANE], 0.0)
    order = tenants(drained(queue, LANE, rare)[:10])
    assert order.count("a") <= 6


def test_who_leaves_costs_its_tenant_nothing() -> None:
    queue = FairQueue()
    gone = enter(queue, LANE, *(claim("a", work=10_000) for _ in range(5)))
    enter(queue, LANE, claim("b"))
    for ticket in gone:
        queue.leave(ticket)
        queue.leave(ticket)
    enter(queue, LANE, claim("a"), claim("b"))
    assert tenants(drained(queue, LANE)) in ("bab", "abb", "bba")
    assert len(queue) == 0


def test_who_is_put_back_has_the_old_place() -> None:
    queue = FairQueue()
    first, second = enter(queue, LANE, claim("a"), claim("a"))
    enter(queue, LANE, claim("b"))
    taken = queue.next([LANE], 0.0)
    assert taken is first
    queue.put_back(first)
    assert tenants(order := drained(queue, LANE)) == "aba"
    assert order[::2] == [first, second]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["enter", "enter", "next", "leave", "put_back"]),
        st.integers(0, 5),
        st.integers(1, 3_000),
    ),
    max_size=120,
)


@given(STEPS)
def test_whatever_happens_everyone_who_waits_is_served_once(
    steps: list[tuple[str, int, int]],
) -> None:
    queue, lanes = FairQueue(), [LANE, LANE._replace(needs=("x",)), OTHER]
    waiting: list[QueueEntry] = []
    for what, number, work in steps:
        if what == "enter":
            made = claim(str(number), work=work, priority=number % 3, weight=1 + number)
            waiting.append(queue.enter(lanes[work % 3], made, 0.0).ticket)
        elif what == "leave" and waiting:
            queue.leave(waiting.pop(work % len(waiting)))
        elif waiting:
            some = lanes[: 1 + work % 3]
            ticket = queue.next(some, 0.0)
            assert (ticket is None) == all(each.lane not in some for each in waiting)
            if ticket is not None and what == "put_back":
                queue.put_back(ticket)
            elif ticket is not None:
                waiting.remove(ticket)
        assert len(queue) == len(waiting) == sum(map(queue.waiting, lanes))
    served = drained(queue, *lanes)
    assert sorted(served, key=id) == sorted(waiting, key=id)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), min_size=1, max_size=40))
def test_the_position_told_is_the_one_kept_where_nobody_comes_after(
    before: list[tuple[int, int]],
) -> None:
    queue = FairQueue()
    for tenant, priority in before:
        enter(queue, LANE, claim(str(tenant), priority=priority))
    (last,) = enter(queue, LANE, claim("0"))
    ahead = drained(queue, LANE).index(last)
    # The turns that are guaranteed to the lower class are not foretold.
    assert last.position <= ahead <= last.position + ahead // PASSED_OVER_MAX
