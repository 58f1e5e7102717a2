"""How busy the processors are is a share of ticks between two looks."""

from pathlib import Path

import pytest

from inference.node import processors
from inference.node.processors import Processors


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "APART_S_MIN", 0.0)


def _write(stat: Path, busy: int, idle: int, waiting: int = 0) -> None:
    stat.write_text(f"cpu  {busy} 0 0 {idle} {waiting} 0 0 0 0 0\ncpu0 1 1 1 1\n")


def test_the_share_is_of_the_ticks_since_the_look_before(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    _write(stat, 100, 900)
    seen = Processors(stat)
    _write(stat, 100 + 98, 900 + 1, 1)
    assert seen.busy_permille() == 980
    _write(stat, 198, 1_900, 1)
    assert seen.busy_permille() == 0


def test_looks_that_are_close_are_told_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    _write(stat, 0, 0)
    seen = Processors(stat)
    _write(stat, 50, 50)
    assert seen.busy_permille() == 500
    monkeypatch.setattr(processors, "APART_S_MIN", 3_600.0)
    _write(stat, 150, 50)
    assert seen.busy_permille() == 500


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu x y z w\n", "cpu 1 2 3\n"])
def test_a_file_that_says_nothing_is_unknown(tmp_path: Path, text: str) -> None:
    stat = tmp_path / "stat"
    stat.write_text(text)
    assert Processors(stat).busy_permille() is None
    assert Processors(tmp_path / "none").busy_permille() is None


def test_ticks_that_stand_still_or_go_back_are_unknown(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    _write(stat, 100, 100)
    seen = Processors(stat)
    assert seen.busy_permille() is None
    _write(stat, 50, 50)
    assert seen.busy_permille() is None
