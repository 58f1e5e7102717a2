"""What `make bench-gateway` tells of its passes, and that its sides take turns."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.gateway import figures, turns, two
from benchmarks.gateway.figures import COMPARED, FEATURES, GUARDED, SHAPES
from benchmarks.gateway.groups import COMPARED as GROUPS
from benchmarks.gateway.turns import FULL, QUICK, Run, Server, Side
from benchmarks.load import Tally
from benchmarks.recorder import Recorder, keys_problem
from benchmarks.stack import Stack


@pytest.fixture
def run() -> Recorder:
    """Passes of a gateway that costs 20 x the control, in some passes more."""
    run = Recorder("gateway")
    for row in (*SHAPES, *FEATURES[:-1]):
        for ms in (20.0, 40.0, 22.0):
            run.keep(row.side, {"cpu_ms": ms, "per_s": 100.0})
    for name in {row.control for row in (*SHAPES, *FEATURES)} | {"whole beside streams"}:
        for ms in (1.0, 1.0, 1.0):
            run.keep(name, {"cpu_ms": ms, "per_s": 5000.0})
    for name in ("one client", "one client of the control", "one stream"):
        run.keep(name, {"p50_ms": 1.0, "ttft_ms": 2.0})
    for gap_ms in (7.0, 9.0, 6.5):
        run.keep("paced", {"us": 30.0, "gap_p99_ms": gap_ms})
        run.keep("paced control", {"us": 10.0, "gap_p99_ms": 6.0})
        run.keep("paced responses", {"us": 33.0, "gap_p99_ms": gap_ms})
        run.keep("paced messages", {"us": 36.0, "gap_p99_ms": gap_ms})
    for name in ("lone", "lone control"):
        run.keep(name, {"us": 5.0, "gap_p99_ms": 5.0})
    for name in two.SIDES:
        run.keep(name, {"cpu_ms": 0.5, "per_s": 2000.0, "p99_ms": 12.0})
    run.keep("idle", {"rss_mib": 90.0})
    return run


def test_all_figures_are_told_with_medians_and_spread(
    run: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = {"features_on": ["s1_admission"], "stages_us": {"pipeline": 9.5}, "errors": 0}
    found = {**figures.figures(run), **seen, "core_share_of_others": 0.012}
    assert keys_problem("gateway", found) == ""
    assert (found["cpu_ms_per_request"], found["cpu_ms_per_request_spread"]) == (22.0, [20.0, 40.0])
    assert (found["ratio_to_control"], found["ratio_to_control_spread"]) == (22.0, [20.0, 40.0])
    assert found["ratio_to_control_paced"] == 3.0
    assert (found["paced_responses_x_chat"], found["paced_messages_x_chat"]) == (1.1, 1.2)
    assert (found["added_itl_p99_ms"], found["added_itl_p99_ms_spread"]) == (1.0, [0.5, 3.0])
    figures.show(found)
    told = capsys.readouterr().out
    assert "auth_only, ratio" in told and "embeddings, CPU ms" in told and "messages, ratio" in told


def test_each_shape_and_feature_has_cpu_and_ratio(run: Recorder) -> None:
    found = figures.figures(run)
    assert set(found["shapes"]) == {
        "chat", "chat_streamed", "completions", "embeddings", "responses", "messages",
    }  # fmt: skip
    assert found["shapes"]["messages"]["ratio"] == 22.0
    assert set(found["features"]) == {"auth_only", "with_limits", "with_hold", "all"}
    assert found["features"]["all"] == found["shapes"]["chat"]
    for row in (*found["features"].values(), found["shapes"]["embeddings"]):
        assert (row["cpu_ms"], row["ratio"]) == (22.0, 22.0)
        assert row["cpu_ms_spread"] == row["ratio_spread"] == [20.0, 40.0]


def test_one_gateway_is_told_beside_two(run: Recorder) -> None:
    told = figures.figures(run)["two_gateways"]
    assert {*told} == {"one", "two", "two_with_twice_the_clients", "meaning"}
    assert (told["two"]["per_s"], told["two"]["p99_ms_spread"]) == (2000.0, [12.0, 12.0])


def test_every_guarded_ratio_is_measured_by_a_group() -> None:
    assert {row.group for row in COMPARED} == set(GROUPS)
    assert len({row.name for row in COMPARED}) == len(COMPARED)
    assert {row.name for row in COMPARED} - {row.name for row in GUARDED} == {"embeddings"}


def test_ratios_of_what_was_not_measured_are_left_out(run: Recorder) -> None:
    passes = {name: run.passes[name] for name in ("paced", "paced control", "chat", "control")}
    assert figures.guarded_ratios(passes) == {"chat": 22.0, "paced_token": 3.0}
    assert figures.guarded_ratios(passes, max)["chat"] == max(
        figures.pass_ratios(passes, figures.SHAPES[0])
    )


def test_the_parts_of_a_request_add_up_to_its_cpu() -> None:
    assert figures.stages({"pipeline": 3, "limiter": 1}, 0.4) == {
        "pipeline": 300.0,
        "limiter": 100.0,
    }


def test_the_control_takes_turns_with_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def one_pass(side: Side, seconds: float, *, clients: int) -> tuple[Tally, float]:
        order.append(side.name)
        return Tally(answers=1, errors=2), 0.5

    monkeypatch.setattr(turns, "one_pass", one_pass)
    run = _run()
    server = Server(1, 2)
    run.in_turns([Side("a", server, _nothing), Side("b", server, _nothing)], run.cost)
    warming, measured = order[:2], order[2:]
    assert warming == ["a", "b"]
    assert measured == ["a", "b", "b", "a", "a", "b"]
    assert len(run.recorder.passes["a"]) == len(run.recorder.passes["b"]) == QUICK.passes
    assert run.errors == 2 * len(measured), "those of warming up count nowhere"


def _run() -> Run:
    """A quick one, of no servers."""
    made = Stack(
        key="k", feature_keys={}, node_credential="", node_name="", embed_credential="",
        embed_name="", model=Path(),
    )  # fmt: skip
    return Run(made, Recorder("gateway"), QUICK)


async def _nothing(connection: object, tally: Tally) -> None:
    """A load that asks for nothing."""


def test_a_full_run_has_five_passes_or_more() -> None:
    assert FULL.passes >= 5


def test_what_others_ran_on_the_core_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"busy_s": 100.0, "now_s": 0.0}

    def one_pass(side: Side, seconds: float, *, clients: int) -> tuple[Tally, float]:
        clock["busy_s"] += 0.8
        clock["now_s"] += 1.0
        return Tally(answers=1), 0.5

    monkeypatch.setattr(turns, "one_pass", one_pass)
    monkeypatch.setattr(turns, "core_busy_s", lambda core: clock["busy_s"])
    monkeypatch.setattr(time, "monotonic", lambda: clock["now_s"])
    run = _run()
    run.in_turns([Side("a", Server(1, 2), _nothing)], run.cost)
    assert round(run.foreign_share, 6) == 0.3
