"""Every `make bench-NAME` can be started, and tells the figures that it has to tell."""

from __future__ import annotations

import re
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.recorder import KEYS, Recorder, keys_problem

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"^bench-(\w+):.*\n\t\$\(PY\) -m (benchmarks[\w.]+)", re.MULTILINE)
# It is a guard, and keeps no figures.
UNKEPT = {"check"}
# What a command keeps as well, of another kind.
BESIDE = {"fleet-links"}
TARGETS = dict(COMMAND.findall((ROOT / "Makefile").read_text()))


def test_every_command_has_a_row_and_every_row_a_command() -> None:
    assert (set(TARGETS) - UNKEPT) | BESIDE == set(KEYS)


@pytest.mark.parametrize("module", sorted(set(TARGETS.values())))
def test_a_command_can_be_started(module: str) -> None:
    folder = ROOT / module.replace(".", "/")
    main = import_module(f"{module}.__main__" if folder.is_dir() else module).main
    assert callable(main)


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
