"""The autoscaling signal: what a load asks for, and how calmly the answer moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.scaling import SETTLE_S, PoolLoad, Scale, nodes_wanted, scale_next


@pytest.mark.parametrize(
    ("load", "wanted"),
    [
        (PoolLoad(), 1),
        (PoolLoad(waiting=1), 1),
        (PoolLoad(waiting=13), 3),
        (PoolLoad(nodes_ready=2, credits=16, in_flight=12), 2),
        (PoolLoad(nodes_ready=2, credits=16, in_flight=13), 3),
        (PoolLoad(nodes_ready=2, credits=16, in_flight=12, waiting=30), 7),
        (PoolLoad(nodes_ready=4, credits=400, in_flight=4, kv_share=0.99), 5),
        (PoolLoad(nodes_ready=4, credits=400, in_flight=0, kv_share=0.99), 1),
        (PoolLoad(nodes_ready=1, credits=1, in_flight=1, waiting=500), 10),
    ],
)
def test_a_load_asks_for_nodes_within_the_bounds(load: PoolLoad, wanted: int) -> None:
    assert nodes_wanted(load, nodes_min=1, nodes_max=10) == wanted


def test_a_pool_without_nodes_wakes_for_one_request() -> None:
    assert nodes_wanted(PoolLoad(), nodes_min=0, nodes_max=10) == 0
    assert nodes_wanted(PoolLoad(unmet=True), nodes_min=0, nodes_max=10) == 1
    assert nodes_wanted(PoolLoad(unmet=True), nodes_min=0, nodes_max=0) == 0


def test_up_at_once_and_down_only_to_the_highest_point_of_a_calm_time() -> None:
    scale = scale_next(None, 2, 0.0)
    scale = scale_next(scale, 5, 1.0)
    assert scale.desired == 5
    for moment, wanted in ((2.0, 1), (100.0, 3), (SETTLE_S + 1.9, 1)):
        scale = scale_next(scale, wanted, moment)
        assert scale.desired == 5
    scale = scale_next(scale, 1, SETTLE_S + 2.0)
    assert scale == Scale(desired=3)


def test_a_long_start_is_worth_a_longer_calm() -> None:
    scale = scale_next(Scale(desired=4), 1, 0.0, 600.0)
    assert scale_next(scale, 1, SETTLE_S + 1.0, 600.0).desired == 4
    assert scale_next(scale, 1, 600.0, 600.0).desired == 1


def test_a_peak_ends_the_wait() -> None:
    scale = scale_next(scale_next(Scale(desired=4), 1, 0.0), 4, 10.0)
    assert scale == Scale(desired=4)
    assert scale_next(scale, 1, SETTLE_S + 5.0).desired == 4


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0.1, 100.0)), min_size=1, max_size=60))
def test_the_signal_is_never_below_what_is_wanted_now(moments: list[tuple[int, float]]) -> None:
    scale, now, seen = None, 0.0, 0
    for wanted, passed in moments:
        now += passed
        seen = max(seen, wanted)
        scale = scale_next(scale, wanted, now)
        assert wanted <= scale.desired <= seen


def test_utilization_is_apart_from_the_queue() -> None:
    load = PoolLoad(nodes_ready=1, credits=8, in_flight=4, waiting=400)
    assert load.busy_share == 0.5
    assert PoolLoad(waiting=4).busy_share == 0.0
