"""Files of results: as they are kept, and those that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks import recorder
from benchmarks.kept import Kept, explain, load, save
from benchmarks.recorder import FOLDER, Recorder, Result, file_problem, spread

pytestmark = pytest.mark.processes  # Git is asked which commit it is.
FIGURES = {"requests": 5, "files": []}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files of a clean tree go; the commit is one that there is."""
    commit, _ = recorder.commit_now()
    monkeypatch.setattr(recorder, "commit_now", lambda: (commit, False))
    monkeypatch.setattr(recorder, "FOLDER", tmp_path)
    monkeypatch.setattr(recorder, "ROOT", tmp_path.parent)
    monkeypatch.setattr(recorder, "commit_exists", lambda told: told == commit)
    return tmp_path


@pytest.fixture
def written(folder: Path) -> Path:
    """A file as a command leaves it."""
    run = Recorder("exports", requests=5)
    run.keep("files", {"s": 1.5})
    return run.finish(FIGURES)


def changed(path: Path, **changes: Any) -> Path:
    """The same file with other content."""
    found = msgspec.json.decode(path.read_bytes(), type=Result)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(found, **changes)))
    return path


def test_every_kept_file_is_what_a_command_has_written() -> None:
    problems = {path.name: file_problem(path) for path in FOLDER.glob("*.json")}
    assert {name: problem for name, problem in problems.items() if problem} == {}


def test_a_written_file_holds_what_was_printed(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = msgspec.json.decode(written.read_bytes(), type=Result)
    assert file_problem(written) == ""
    assert msgspec.json.decode(found.printed) == FIGURES
    assert found.passes == {"files": [{"s": 1.5}]}
    assert found.machine.cores > 0 and found.machine.versions["Python"]


def test_a_key_that_was_added_by_hand_is_refused(written: Path) -> None:
    text = written.read_text().replace('"name"', '"note": "on a quiet machine", "name"')
    written.write_text(text)
    assert "note" in file_problem(written)


def test_a_figure_that_was_edited_is_refused(written: Path) -> None:
    edited = '{"requests": 6, "files": []}'
    assert file_problem(changed(written, printed=edited)) == "it was edited"


def test_a_commit_that_is_not_in_history_is_refused(written: Path) -> None:
    found = msgspec.json.decode(written.read_bytes(), type=Result)
    path = written.with_name(written.name.replace(found.commit[:10], "0" * 10))
    other = msgspec.structs.replace(found, commit="0" * 40)
    other.digest = other.digest_of()
    path.write_bytes(msgspec.json.encode(other))
    assert "no commit" in file_problem(path)


def test_a_tree_with_changes_writes_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, _ = recorder.commit_now()
    monkeypatch.setattr(recorder, "commit_now", lambda: (commit, True))
    monkeypatch.setattr(recorder, "SCRATCH", folder / "scratch")
    path = Recorder("exports").finish(FIGURES)
    assert path.parent == folder / "scratch"
    assert "changes" in file_problem(path)


def test_a_missing_figure_and_one_without_a_reason_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="no files"):
        Recorder("exports").finish({"requests": 5})
    with pytest.raises(ValueError, match="why_files"):
        Recorder("exports").finish({"requests": 5, "files": None})
    assert list(folder.iterdir()) == []


def test_a_pass_without_a_figure_is_kept_as_null(folder: Path) -> None:
    run = Recorder("exports")
    run.keep("files", {"s": float("nan")})
    path = run.finish(FIGURES)
    assert file_problem(path) == ""
    assert msgspec.json.decode(path.read_bytes(), type=Result).passes == {"files": [{"s": None}]}


def test_a_figure_is_the_median_with_its_spread() -> None:
    assert spread("ms", [3.0, 1.0, 2.0]) == {"ms": 2.0, "ms_spread": [1.0, 3.0]}
    assert spread("ms", [float("nan")])["ms"] is None


class Counted(Kept, kw_only=True):
    """A campaign's state."""

    tried: int = 0


def test_a_campaign_goes_on_with_the_same_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    monkeypatch.setattr("benchmarks.kept.code_now", lambda: "one")
    state = load(path, Counted)
    state.tried = 7
    state.lose("node killed: lost", 1, ["request 5"])
    state.lose("node killed: hung", 0, [])
    save(state, path)
    assert load(path, Counted).tried == 7
    monkeypatch.setattr("benchmarks.kept.code_now", lambda: "two")
    anew = load(path, Counted)
    assert (anew.tried, anew.code) == (0, "two")
    assert [(loss.code, loss.what, loss.count) for loss in anew.losses] == [
        ("one", "node killed: lost", 1)
    ]


def test_a_loss_stays_with_its_explanation(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    state = load(path, Counted)
    state.lose("lost", 1, ["request 5"])
    save(state, path)
    assert explain(path, Counted, "the node had no report") == 1
    assert load(path, Counted).told()[0]["explanation"] == "the node had no report"
    assert explain(path, Counted, "another") == 0
