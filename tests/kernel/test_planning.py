"""Planning: what a node holds, what is foreseen, the nodes of both, and plans replayed."""

from __future__ import annotations

from math import sqrt

import msgspec
import pytest

from controlplane.kernel.insights.capacity import (
    CACHE,
    SLOTS,
    Engine,
    Load,
    Slowed,
    slower_by_sequence,
)
from controlplane.kernel.insights.planning import (
    DAY_S,
    DECODE,
    PREFILL,
    STEP_S,
    WEEK_S,
    NodeBound,
    Outlook,
    Promise,
    forecast,
    foreseen,
    make_plan,
    node_bounds,
    replay,
)
from controlplane.kernel.objectives.counting import INTER_TOKEN, TTFT

# A prefill of 100 ms; 100 tokens, each 20 ms and 1 ms for each further sequence.
LOAD = Load(per_s=10.0, tokens_in=1_000, tokens_out=100, cached_share=0.2)
ENGINE = Engine(
    prefill_us=125.0, decode_us=20_000.0, batch=1.0, slots=0, kv_tokens=0, slower_us=1_000.0
)
FIRST = Promise(name="first", indicator=TTFT, threshold_us=500_000, share=0.95, apart_us=120_000.0)
PACE = Promise(name="pace", indicator=INTER_TOKEN, threshold_us=40_000, share=0.95)
MONDAY = 1_795_996_800
NOON = MONDAY + DAY_S // 2


def by_name(**changes: object) -> dict[str, NodeBound]:
    engine = msgspec.structs.replace(ENGINE, **changes)
    return {bound.what: bound for bound in node_bounds(LOAD, engine, (FIRST, PACE))}


def test_a_node_breaks_first_where_its_bound_is_lowest() -> None:
    bounds = node_bounds(LOAD, ENGINE, (FIRST, PACE))
    assert [bound.per_s for bound in bounds] == sorted(bound.per_s for bound in bounds)
    found = by_name()
    # Prefill fills a node at 10 a second; decoding at 1 / (100 x 1 ms), too.
    assert found[PREFILL].per_s == pytest.approx(10.0, rel=1e-6)
    assert found[DECODE].per_s == pytest.approx(10.0, rel=1e-6)
    assert bounds[0].words == "holds time between tokens p95 40 ms"


def test_the_wait_for_the_first_token_is_that_of_a_queue() -> None:
    rate = by_name()[TTFT].per_s
    # At the bound 95 % wait no longer than what the promise leaves: P(W > t) = busy e^(-t/W).
    busy = rate * 0.1
    left = busy * 2.718281828 ** (-(0.5 - 0.12) * (1 - busy) / 0.1)
    assert left == pytest.approx(0.05, rel=1e-3)
    late = msgspec.structs.replace(FIRST, apart_us=600_000.0)
    bounds = node_bounds(LOAD, ENGINE, (late,))
    assert bounds[0].per_s == 0 and bounds[0].promised


def test_batches_slow_and_room_is_kept_for_a_crowd() -> None:
    rate = by_name()[INTER_TOKEN].per_s
    # 1 ms for each of 21 sequences beside 19 ms; 95 % of the time no more than these.
    mean = rate * (0.1 + 1.9) / (1 - rate * 0.1)
    assert mean + 1.6448536 * sqrt(mean) == pytest.approx(21, rel=1e-4)
    narrow = by_name(slots=8, kv_tokens=1_100 * 8)
    assert narrow[SLOTS].per_s == pytest.approx(narrow[CACHE].per_s)
    assert narrow[SLOTS].per_s < rate < by_name(slots=64)[SLOTS].per_s


def test_what_a_further_sequence_costs_is_fitted_to_what_was_measured() -> None:
    times = [Slowed(batch, 19_000 + 1_000 * batch, 100 + batch) for batch in range(1, 9)]
    assert slower_by_sequence(times) == pytest.approx(1_000)
    assert slower_by_sequence(times[:5]) == 0
    assert slower_by_sequence([Slowed(4, 20_000 + noise, 10) for noise in range(8)]) == 0
    assert slower_by_sequence([Slowed(b, 50_000 / b, 10) for b in range(1, 9)]) == 0
    # Nor does a stream alone take no time.
    assert slower_by_sequence([Slowed(b, 1_000 * b * b, 10) for b in range(1, 9)]) <= 25_500 / 4.5


def flat(days: int, per_s: float) -> dict[int, float]:
    return dict.fromkeys(range(NOON - days * DAY_S, NOON, STEP_S), per_s)


def test_the_peak_is_that_of_the_same_hour_last_week_with_the_trend() -> None:
    history = flat(9, 2.0)
    history[NOON - WEEK_S + 3 * 3_600] = 10.0
    seen = forecast(history, NOON + 60, 4 * 3_600)
    assert seen.basis == "last week" and seen.per_s == pytest.approx(10.0)
    assert seen.at_s - NOON == 3 * 3_600
    assert seen.words == "peak 10 requests/s at 15:00 as last week"
    # What lies beyond what is looked at does not count yet.
    assert forecast(history, NOON + 60, 3_600).per_s == pytest.approx(2.0)
    for at in range(NOON - DAY_S, NOON, STEP_S):
        history[at] = 3.0
    grown = forecast(history, NOON + 60, 4 * 3_600)
    assert grown.trend == pytest.approx(1.5, rel=0.03)
    assert grown.per_s == 10 * grown.trend


def test_a_trend_needs_the_whole_day_of_last_week() -> None:
    begins = NOON - WEEK_S - DAY_S
    history = dict.fromkeys(range(begins + STEP_S, NOON, STEP_S), 2.0)
    history |= dict.fromkeys(range(NOON - DAY_S, NOON, STEP_S), 4.0)
    assert {one.trend for one in foreseen(history, NOON, STEP_S)} == {1.0}
    history[begins] = 2.0
    assert {one.trend for one in foreseen(history, NOON, STEP_S)} == {2.0}


def test_without_a_week_yesterday_counts_and_never_less_than_what_comes_now() -> None:
    assert forecast(flat(2, 2.0), NOON, 3_600).basis == "now"
    young = flat(2, 2.0) | {NOON - DAY_S + 3_600: 5.0}
    assert forecast(young, NOON, 3_600).basis == "yesterday"
    busy = flat(9, 2.0) | {NOON: 7.0}
    seen = forecast(busy, NOON + 600, 3_600)
    assert (seen.basis, seen.words) == ("now", "7 requests/s now")
    assert forecast({}, NOON, 3_600).per_s == 0


def test_a_plan_says_why_and_keeps_to_the_pools_bounds() -> None:
    outlook = Outlook(per_s=14.0, at_s=MONDAY + 15 * 3_600, basis="last week")
    bounds = (NodeBound(TTFT, 3.1, f"holds {FIRST.words}", True), NodeBound(SLOTS, 9.0, "…", False))
    plan = make_plan(outlook, bounds, least=1, most=8)
    assert (plan.nodes, plan.wanted, plan.per_node_s) == (5, 5, 3.1)
    assert plan.reasons == (
        "peak 14 requests/s at 15:00 as last week",
        "a node holds TTFT p95 500 ms up to 3.1 requests/s: 5 nodes",
    )
    assert make_plan(outlook, bounds, least=0, most=3).reasons[-1] == (
        "the pool has at most 3: 3 nodes"
    )
    quiet = msgspec.structs.replace(outlook, per_s=0.0)
    assert make_plan(quiet, bounds, least=2, most=8).nodes == 2
    broken = (NodeBound(TTFT, 0.0, f"holds {FIRST.words}", True), *bounds[1:])
    told = make_plan(outlook, broken, least=0, most=8)
    assert told.nodes == 2 and any("more nodes do not help" in why for why in told.reasons)
    assert make_plan(outlook, (), least=0, most=8).wanted == 1


def test_a_replay_counts_cost_and_what_came_beyond_what_nodes_hold() -> None:
    steps = range(0, 4 * STEP_S, STEP_S)
    history = dict(zip(steps, (1.0, 4.0, 4.0, 1.0), strict=True))
    fixed = replay("1 node", history, steps, lambda at, n: 1, per_node_s=2.0, cold_start_s=90.0)
    assert (fixed.node_hours, fixed.nodes_most) == (1.0, 1)
    assert (fixed.requests, fixed.late) == (10 * STEP_S, 2 * 2 * STEP_S)
    grows = replay(
        "grows", history, steps, lambda at, n: 2 if history[at] > 2 else 1,
        per_node_s=2.0, cold_start_s=90.0,
    )  # fmt: skip
    # The second one starts with the load, and is there 90 seconds later.
    assert (grows.node_hours, grows.late, grows.late_share) == (1.5, 180.0, 180 / 9_000)
