"""The guard of `make bench-check`: what it compares with, when it measures, and what fails it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.gateway import check, kept
from benchmarks.gateway.check import IF_CHANGED, Measured, least, proven, verdict
from benchmarks.gateway.kept import Cpu, Grown, grown, last_kept, reason_to_skip
from benchmarks.recorder import ROOT, Machine, Result

THIS = Cpu("EPYC", ("avx2",))


def result(**changes: Any) -> Result:
    """A kept file's content: a chat costs 20 x the control."""
    machine = Machine(
        cpu=THIS.name, flags=list(THIS.flags), cores=2, kernel="", load_before=0.0,
        load_after=0.0, versions={},
    )  # fmt: skip
    passes = {"chat": [{"cpu_ms": 20.0}] * 3, "control": [{"cpu_ms": 1.0}] * 3, "sampled": []}
    made = Result(
        name="gateway", commit="a" * 40, changed=False, began="2026-11-24T10:00:00+00:00",
        seconds=1.0, machine=machine, parameters={}, passes=passes, printed="{}",
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An older file of this CPU, a newer one, and one of another CPU that is newer still."""
    monkeypatch.setattr(kept, "commit_exists", lambda commit: commit[0] in "abc")
    other = msgspec.structs.replace(result().machine, flags=["avx2", "avx512f"])
    for name, content in {
        "old": result(),
        "new": result(commit="b" * 40, began="2026-11-25T10:00:00+00:00"),
        "other": result(commit="c" * 40, began="2026-11-26T10:00:00+00:00", machine=other),
        "elsewhere": result(commit="d" * 40, began="2026-11-27T10:00:00+00:00"),
        "slowed": result(commit="a" * 40, began="2026-11-28T10:00:00+00:00", passes={}),
    }.items():
        (tmp_path / f"gateway-{name}.json").write_bytes(msgspec.json.encode(content))
    return tmp_path


def test_the_newest_file_of_this_kind_of_cpu_and_history_is_taken(folder: Path) -> None:
    found = last_kept(THIS, folder)
    assert found is not None and found.commit[0] == "b"
    found = last_kept(Cpu("EPYC", ("avx2", "avx512f")), folder)
    assert found is not None and found.commit[0] == "c"
    assert last_kept(Cpu("Xeon", ("avx2",)), folder) is None


def test_it_measures_only_where_the_hot_path_has_changed() -> None:
    assert "no results" in reason_to_skip(None, ())
    assert "nothing of the hot path" in reason_to_skip(result(), [])
    assert reason_to_skip(result(), ["controlplane/gateway/task.py"]) == ""


def test_every_folder_of_the_hot_path_is_there() -> None:
    for folder in kept.HOT_PATH:
        assert list((ROOT / folder).glob("*")), folder


def test_a_changed_and_a_new_file_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    path = tmp_path / kept.HOT_PATH[0] / "task.py"
    path.parent.mkdir(parents=True)
    path.write_text("one = 1\n")
    (tmp_path / "README.md").write_text("before")
    who = "-c user.name=t -c user.email=t@localhost"
    for command in ("init -q", "add .", f"{who} commit -q -m one"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    (tmp_path / "README.md").write_text("after")
    assert kept.changed_since("HEAD") == []
    path.write_text("one = 2\n")
    path.with_name("new.py").write_text("")
    names = [f"{kept.HOT_PATH[0]}/new.py", f"{kept.HOT_PATH[0]}/task.py"]
    assert kept.changed_since("HEAD") == names


def test_more_than_a_tenth_is_growth_and_says_from_what_to_what() -> None:
    before = {"chat": 20.0, "embeddings": 30.0, "paced_token": 3.0}
    (found,) = grown(before, {"chat": 22.1, "paced_token": 3.3, "fresh": 99.0})
    assert str(found) == "chat grew from 20.00 to 22.10 x the control"


def test_a_row_is_as_low_as_its_least_measurement() -> None:
    measured = [Measured({"chat": 25.0, "auth_only": 9.0}, False), Measured({"chat": 21.0}, False)]
    assert least(measured) == {"chat": 21.0, "auth_only": 9.0}


@pytest.mark.parametrize(
    ("disturbed", "fails"),
    [
        ([False, False], True),
        ([True, False, False], True),
        ([False], False),
        ([True, True, False], False),
    ],
)
def test_growth_takes_two_measurements_on_a_calm_machine(
    disturbed: list[bool], fails: bool
) -> None:
    measured = [Measured({"chat": 25.0}, each) for each in disturbed]
    over = [Grown("chat", 20.0, 25.0)]
    assert bool(proven(over, measured)) is fails


def test_the_verdict_names_what_grew() -> None:
    over = [Grown("chat", 20.0, 25.0)]
    assert "FAILED: since aaaaaaaaaa chat grew from 20.00 to 25.00" in verdict(result(), over, over)
    assert "too much else to do" in verdict(result(), over, [])
    assert "no ratio is more than 1.10 x" in verdict(result(), [], [])
    assert "nothing to compare with" in verdict(None, [], [])


Measure = Callable[[object, set[str]], Measured]


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[float]], list[set[str]]]:
    """Lets each measurement find the next of these ratios; returns the groups that were asked."""

    def replace(ratios: Sequence[float]) -> list[set[str]]:
        asked: list[set[str]] = []

        def measure(made: object, groups: set[str]) -> Measured:
            asked.append(groups)
            return Measured({"chat": ratios[len(asked) - 1]}, disturbed=False)

        monkeypatch.setattr(check, "measure", measure)
        return asked

    return replace


@pytest.mark.parametrize(
    ("ratios", "times"), [([21.0], 1), ([25.0, 21.0], 2), ([25.0, 24.0, 23.0], 3)]
)
def test_what_grew_is_measured_again(
    measuring: Callable[[Sequence[float]], list[set[str]]], ratios: list[float], times: int
) -> None:
    asked = measuring(ratios)
    made: Any = object()
    found = check.check(made, {"chat": 20.0}, began_s=time.monotonic())
    assert (len(found), asked[1:]) == (times, [{"whole"}] * (times - 1))


def test_no_measurement_begins_after_its_time(
    measuring: Callable[[Sequence[float]], list[set[str]]],
) -> None:
    measuring([25.0, 25.0])
    made: Any = object()
    began_s = time.monotonic() - check.REPEAT_S_MAX
    assert len(check.check(made, {"chat": 20.0}, began_s=began_s)) == 1


def test_nothing_is_started_where_nothing_has_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "last_kept", lambda cpu: last_kept(THIS, folder))
    monkeypatch.setattr(check, "changed_since", lambda commit: [])
    monkeypatch.setattr("sys.argv", ["check", IF_CHANGED])
    assert check.main() == 0
    assert "nothing is measured: nothing of the hot path" in capsys.readouterr().out
