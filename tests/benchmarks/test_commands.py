"""Every `make bench-NAME` can be started, and tells the figures that it has to tell."""

from __future__ import annotations

import re
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.recorder import KEYS, Recorder, keys_problem

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^bench-(\w+):.*\n\t\$\(PY\) -m (benchmarks\.\w+)", re.MULTILINE)
TARGETS = dict(COMMAND.findall((ROOT / "Makefile").read_text()))


def test_every_command_has_a_row_and_every_row_a_command() -> None:
    assert set(TARGETS) == set(KEYS)


@pytest.mark.parametrize("module", sorted(set(TARGETS.values())))
def test_a_command_can_be_started(module: str) -> None:
    folder = ROOT / module.replace(".", "/")
    main = import_module(f"{module}.__main__" if folder.is_dir() else module).main
    assert callable(main)


def test_the_gateway_tells_all_figures_of_its_passes() -> None:
    gateway = import_module("benchmarks.gateway")
    run = Recorder("gateway")
    for name in ("chat", "control", "completions", "control beside completions", "streams",
                 "whole beside streams"):  # fmt: skip
        for ms in (1.0, 3.0, 2.0):
            run.keep(name, {"cpu_ms": ms, "per_s": 100.0})
    for name in ("one client", "one client of the control", "one stream"):
        run.keep(name, {"p50_ms": 1.0, "ttft_ms": 2.0})
    for name in ("paced", "paced control", "lone", "lone control"):
        run.keep(name, {"us": 5.0})
    run.keep("idle", {"rss_mib": 90.0})
    found = {**gateway.figures(run), "features_on": ["s1_admission"], "stages_us": {}, "errors": 0}
    assert keys_problem("gateway", found) == ""
    assert (found["cpu_ms_per_request"], found["cpu_ms_per_request_spread"]) == (2.0, [1.0, 3.0])
    assert found["shapes"]["messages"]["why_cpu_ms"]
    gateway.show(found)


def test_the_control_takes_turns_with_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = import_module("benchmarks.gateway")
    order: list[int] = []

    def one_pass(server: int, work: object, *, clients: int) -> tuple[object, float]:
        order.append(server)
        return import_module("benchmarks.load").Tally(answers=1), 0.5

    monkeypatch.setattr(gateway, "one_pass", one_pass)
    monkeypatch.setattr(gateway, "warm", lambda *_, clients: None)
    monkeypatch.setattr(gateway, "PASSES", 3)
    run = Recorder("gateway")
    gateway.in_turns(run, [("a", 1, None), ("b", 2, None)], gateway.cost, clients=1)
    assert order == [1, 2, 2, 1, 1, 2]
    assert len(run.passes["a"]) == len(run.passes["b"]) == 3


def test_recording_tells_medians_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = import_module("benchmarks.telemetry.recording")
    monkeypatch.setattr(recording, "PASSES", 2)
    monkeypatch.setattr(recording, "DRAWN", 60)
    monkeypatch.setattr(recording, "SLOW_PER_S", 1)
    monkeypatch.setattr(recording, "FAST_PER_S", 2)
    run = Recorder("telemetry")
    found = recording.run(run)
    assert len(run.passes["recording"]) == 2
    assert {"record_cpu_us", "record_cpu_us_spread", "mib_10k_series"} < set(found)
    assert found["series"] >= recording.SERIES_LEAST


def test_the_campaign_of_faults_compares_each_cancel_with_its_own_bound() -> None:
    campaign = import_module("benchmarks.faults.campaign")
    state = campaign.State(cancel_ms=[5.0, 30.0, 45.0], cancel_bound_ms=[20.0, 50.0, 40.0])
    found = campaign.figures(state, 20)
    assert keys_problem("faults", found) == ""
    assert found["cancels_later_than_two_steps_and_20_ms"] == 1
    assert not found["clean"]
    assert keys_problem("faults", campaign.figures(campaign.State(), 20)) == ""
    assert "losses" in found and asdict(import_module("benchmarks.faults.ground").Count())


def test_a_loss_of_a_campaign_is_told_until_the_end() -> None:
    campaign = import_module("benchmarks.faults.campaign")
    state = campaign.State(code="one")
    state.lose("node frozen: lost", 1, ["no answer"])
    (told,) = campaign.figures(state, 20)["losses"]
    assert (told["what"], told["count"], told["explanation"]) == ("node frozen: lost", 1, "")
