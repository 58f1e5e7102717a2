"""The worksheet's arithmetic: Little's law, the scarcest resource, nodes and GPU-hours."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from controlplane.kernel.insights.capacity import CACHE, COMPUTE, SLOTS, Engine, Load, make_sheet

# The reference workload: 1,025 tokens in, 150 out at 25 ms each, a prefill of 145 ms.
LOAD = Load(per_s=10.0, tokens_in=1_000, tokens_out=150, cached_share=0.2)
ENGINE = Engine(prefill_us=125.0, decode_us=25_000.0, batch=20.0, slots=64, kv_tokens=100_000)


def test_requests_under_way_are_rate_times_duration() -> None:
    sheet = make_sheet(LOAD, ENGINE, nodes=2, cards_per_node=4)
    # 800 tokens to compute and 150 to decode: 0.1 s and 3.75 s.
    assert sheet.seconds == pytest.approx(3.85)
    assert sheet.at_once == pytest.approx(38.5)


def test_the_fullest_resource_breaks_first_and_bounds_the_rate() -> None:
    sheet = make_sheet(LOAD, ENGINE, nodes=2, cards_per_node=4)
    assert {use.resource: use.used for use in sheet.uses} == pytest.approx(
        {COMPUTE: 38.5 / 40, SLOTS: 38.5 / 128, CACHE: 38.5 * 1_150 / 200_000}
    )
    assert sheet.uses[0].resource == COMPUTE
    assert sheet.uses[0].headroom == pytest.approx(40 / 38.5)
    assert sheet.per_s_max == pytest.approx(10 * 40 / 38.5)
    assert (sheet.nodes_needed, sheet.gpu_hours_day) == (2, 192.0)


def test_batching_and_caching_move_what_breaks_first() -> None:
    batched = msgspec.structs.replace(ENGINE, batch=200.0)
    assert make_sheet(LOAD, batched, nodes=2, cards_per_node=1).uses[0].resource == SLOTS
    long = msgspec.structs.replace(LOAD, tokens_in=20_000.0, cached_share=1.0)
    assert make_sheet(long, batched, nodes=2, cards_per_node=1).uses[0].resource == CACHE


def test_without_nodes_everything_is_full_and_nothing_is_carried() -> None:
    sheet = make_sheet(LOAD, ENGINE, nodes=0, cards_per_node=1)
    assert sheet.uses[0].used == inf and sheet.per_s_max == 0 and sheet.nodes_needed == 2


def test_without_load_nothing_is_used() -> None:
    idle = make_sheet(msgspec.structs.replace(LOAD, per_s=0.0), ENGINE, nodes=1, cards_per_node=1)
    assert (idle.nodes_needed, idle.uses[0].used) == (0, 0.0)
    assert idle.per_s_max == make_sheet(LOAD, ENGINE, nodes=1, cards_per_node=1).per_s_max


def test_what_is_not_known_of_nodes_is_left_out() -> None:
    bare = msgspec.structs.replace(ENGINE, slots=0, kv_tokens=0)
    assert [use.resource for use in make_sheet(LOAD, bare, nodes=1, cards_per_node=1).uses] == [
        COMPUTE
    ]
