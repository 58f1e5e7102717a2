"""`make bench-interpreters`: what it tells of each Python, and which it takes."""

from __future__ import annotations

import sys

import pytest

from benchmarks import interpreters
from benchmarks.interpreters import Interpreter
from benchmarks.recorder import Recorder, keys_problem


def test_each_interpreter_is_told_beside_its_control_and_the_first_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = Recorder("interpreters")
    for name, chat_ms in (("3.11.7", 0.4), ("3.13.0", 0.3)):
        for _ in range(3):
            run.keep(f"{name} chat", {"cpu_ms": chat_ms, "per_s": 2000.0})
            run.keep(f"{name} control", {"cpu_ms": 0.02, "per_s": 50_000.0})
            run.keep(f"{name} streams", {"cpu_ms": 0.6, "per_s": 1500.0})
        for when in ("idle", "loaded"):
            run.keep(f"{name} {when}", {"rss_mib": 111.25})
    pythons = [Interpreter(f"python{name}", name, "GCC") for name in ("3.11.7", "3.13.0")]
    found = interpreters.figures(run, pythons)
    assert keys_problem("interpreters", found) == ""
    newer = found["interpreters"]["3.13.0"]
    assert (newer["ratio"], newer["cpu_x_first"], newer["streams_per_s"]) == (15.0, 0.75, 1500.0)
    assert newer["rss_mib_idle"] == 111.2
    interpreters.show(found)
    assert "  3.13.0: GCC" in capsys.readouterr().out


@pytest.mark.processes
def test_an_interpreter_tells_its_version_and_build() -> None:
    found = interpreters.interpreter(sys.executable)
    assert found.name == sys.version.split()[0]
    assert "GCC" in found.build or "Clang" in found.build


@pytest.mark.parametrize("given", [[], ["3.12"] * (interpreters.PYTHONS_MAX + 1)])
def test_a_number_of_interpreters_has_to_be_named(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["interpreters", *given])
    assert interpreters.main() == 2
    assert "PYTHONS=" in capsys.readouterr().out
