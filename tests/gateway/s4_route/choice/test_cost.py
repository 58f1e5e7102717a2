"""The routing cost: its terms, its bounds, and what it chooses; nodes are real accounts."""

from __future__ import annotations

from collections import Counter
from math import inf

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.nodes.measured.account import ACTIVE_WEIGHT, NodeAccount
from controlplane.gateway.nodes.measured.means import COPY_WEIGHT_MAX, FleetMeans
from controlplane.gateway.s4_route.choice.cost import EVICT_WEIGHT, choose, explain
from inference.contract.frames import Step
from tests.support.fleet import make_step

RATE = 10_000
STEP_S = 0.02
BLOCK = 16
BLOCKS = 1000
NOW_S = 100.0


def step(**fields: object) -> Step:
    full = {"kv_free_blocks": BLOCKS, **fields}
    return msgspec.structs.replace(make_step(), **full)


def node(*, active: int = 0, queued: int = 0, speed: float = 1.0, **told: object) -> NodeAccount:
    """A node that has shown its speed; `told` is of its last step frame."""
    account = NodeAccount(64, block_size=BLOCK, kv_blocks=BLOCKS)
    prefill_us = int(1e6 / speed)
    account.on_step(step(prefilled_tokens=RATE, step_us=prefill_us), NOW_S)
    for _ in range(active - 1):
        account.book(0).prefilled()
    if active:
        account.book(queued)
    account.on_step(step(step_us=int(STEP_S * 1e6 / speed), waiting_tokens=queued, **told), NOW_S)
    return account


def means(backlog: float = 0.0, *nodes: NodeAccount) -> FleetMeans:
    made = FleetMeans()
    made.observe(nodes or [node()], NOW_S)
    made.backlog = backlog
    return made


def cost_s(one: NodeAccount, uncached: int, of: FleetMeans, *, now_s: float) -> float:
    return choose([one], [0], uncached, of, now_s=now_s, draw=0.0).costs[0]


def place_of(nodes: list[NodeAccount], cached: list[int], tokens: int, of: FleetMeans) -> int:
    return choose(nodes, cached, tokens, of, now_s=NOW_S, draw=0.0).place


def test_the_sum_is_that_of_the_design() -> None:
    busy = node(active=3, queued=500, kv_free_blocks=200, kv_cached_blocks=200, oldest_block_s=30.0)
    of = means(0.5, busy, node(kv_cached_blocks=BLOCKS, oldest_block_s=90.0))
    assert of.copy_weight == pytest.approx(1.0)
    assert of.oldest_s == pytest.approx(60.0)
    uncached = 1000
    evicted = uncached * 60 / (30 + 60)
    expected = (
        (500 + uncached) / RATE
        + ACTIVE_WEIGHT * (3 + 1) * STEP_S
        + (1.0 * uncached + EVICT_WEIGHT * evicted) / RATE
    )
    assert cost_s(busy, uncached, of, now_s=NOW_S) == pytest.approx(expected)
    parts = explain(busy, uncached, of, now_s=NOW_S)
    assert sum(msgspec.structs.astuple(parts)) == pytest.approx(expected)
    assert parts.overflow_s == 0


numbers = st.integers(0, 20_000)
accounts = st.builds(
    node,
    active=st.integers(1, 60),
    queued=numbers,
    speed=st.floats(0.1, 10),
    kv_free_blocks=st.just(BLOCKS),
    kv_cached_blocks=st.integers(0, BLOCKS),
    oldest_block_s=st.floats(0, 100),
)


@given(st.lists(st.tuples(accounts, st.integers(0, 999)), min_size=1, max_size=8), st.floats(0, 1))
def test_all_at_once_is_each_for_itself(
    pairs: list[tuple[NodeAccount, int]], backlog: float
) -> None:
    nodes, cached = [each for each, _ in pairs], [known for _, known in pairs]
    of = means(backlog, *nodes)
    choice = choose(nodes, cached, 1000, of, now_s=NOW_S, draw=0.5)
    single = [
        sum(msgspec.structs.astuple(explain(each, 1000 - known, of, now_s=NOW_S)))
        for each, known in zip(nodes, cached, strict=True)
    ]
    assert choice.costs == pytest.approx(single)
    assert choice.costs[choice.place] <= min(single) * 1.0101


@given(accounts, numbers, numbers, st.floats(0, 1))
def test_more_uncached_tokens_never_cost_less(
    one: NodeAccount, fewer: int, more: int, backlog: float
) -> None:
    fewer, more = sorted((fewer, more))
    of = means(backlog, one)
    low, high = (cost_s(one, uncached, of, now_s=NOW_S) for uncached in (fewer, more))
    assert low <= high


@given(st.integers(1, 60), numbers, numbers, numbers)
def test_more_waiting_tokens_never_cost_less(active: int, less: int, more: int, size: int) -> None:
    less, more = sorted((less, more))
    of = means(0.3)
    told = {"kv_cached_blocks": 400, "oldest_block_s": 5.0}
    low, high = (
        cost_s(node(active=active, queued=queued, **told), size, of, now_s=NOW_S)
        for queued in (less, more)
    )
    assert low <= high


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.floats(0, 1, exclude_max=True))
def test_a_node_without_a_credit_is_never_chosen(full: list[bool], draw: float) -> None:
    nodes = [node(active=64) if each else node(active=20, queued=9000) for each in full]
    cached = [900 if each else 0 for each in full]
    if all(full):
        with pytest.raises(ValueError, match="credit"):
            choose(nodes, cached, 1000, means(), now_s=NOW_S, draw=draw)
        return
    choice = choose(nodes, cached, 1000, means(), now_s=NOW_S, draw=draw)
    assert not full[choice.place]
    assert [cost == inf for cost in choice.costs] == full


def test_equal_nodes_take_turns_by_chance() -> None:
    nodes = [node() for _ in range(4)]
    draws = [number / 400 for number in range(400)]
    places = Counter(
        choose(nodes, [0] * 4, 500, means(), now_s=NOW_S, draw=draw).place for draw in draws
    )
    assert places == {0: 100, 1: 100, 2: 100, 3: 100}


def test_an_idle_fleet_copies_a_prefix_and_a_busy_one_holds_on_to_it() -> None:
    nodes = [node(active=1, queued=1500), node()]
    cached = [1000, 0]
    assert place_of(nodes, cached, 1100, means(0.0)) == 1
    assert place_of(nodes, cached, 1100, means(0.9)) == 0
    assert means(1.0).copy_weight == COPY_WEIGHT_MAX


def test_running_requests_alone_do_not_outweigh_a_cached_prompt() -> None:
    assert place_of([node(active=20), node()], [1000, 0], 1100, means()) == 0
    assert place_of([node(active=20), node()], [0, 0], 1100, means()) == 1


def test_a_cache_that_turns_over_quickly_is_left_alone() -> None:
    full = {"kv_cached_blocks": BLOCKS}
    young, old = node(oldest_block_s=1.0, **full), node(oldest_block_s=60.0, **full)
    empty = node(oldest_block_s=0.0)
    of = means(0.0, young, old, empty)
    assert place_of([young, old], [0, 0], 2000, of) == 1
    assert place_of([young, old, empty], [0, 0, 0], 2000, of) == 2


def test_a_prompt_that_does_not_fit_goes_where_it_does() -> None:
    tight = node(kv_free_blocks=10)
    of = means()
    assert explain(tight, 500, of, now_s=NOW_S).overflow_s == pytest.approx((500 - 160) / RATE)
    assert place_of([tight, node()], [0, 0], 500, of) == 1


def test_a_new_node_counts_as_fast_as_its_peers() -> None:
    fresh = NodeAccount(64, block_size=BLOCK, kv_blocks=BLOCKS)
    nodes = [node(speed=3.0), fresh, node(speed=3.0)]
    of = FleetMeans()
    of.observe(nodes, NOW_S)
    choice = choose(nodes, [0, 0, 0], 1000, of, now_s=NOW_S, draw=0.0)
    assert choice.costs[1] == pytest.approx(choice.costs[0], rel=0.01)
    for _ in range(10):
        fresh.book(1000)
    assert place_of(nodes, [0, 0, 0], 1000, of) != 1


def test_the_share_of_busy_nodes_is_followed_slowly() -> None:
    idle, busy = node(), node(active=1, queued=10)
    of = FleetMeans()
    of.observe([idle, idle], 0.0)
    of.observe([busy, idle], 0.01)
    assert of.backlog == 0
    of.observe([busy, idle], 5.0)
    assert of.backlog == pytest.approx(0.5 * (1 - 1 / 2.718281828), rel=1e-3)
    of.observe([busy, busy], 500.0)
    assert of.backlog == pytest.approx(1.0)
