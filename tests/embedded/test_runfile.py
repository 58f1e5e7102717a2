"""The run file: one supervisor a folder, and only our own left-overs are ended."""

import subprocess
from pathlib import Path

import msgspec

from controlplane.embedded.processes import Run, RunFile, entry, living, own_entry
from tests.support.embedded import bystander


def argv_of(process: subprocess.Popen[bytes]) -> list[str]:
    """The command that a test started."""
    assert isinstance(process.args, list)
    return [str(part) for part in process.args]


def test_the_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = RunFile(tmp_path), RunFile(tmp_path)
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


def test_left_over_children_are_ended_and_named(tmp_path: Path) -> None:
    runfile = RunFile(tmp_path)
    with bystander() as child:
        runfile.write(Run("http://here", own_entry(), [entry("node", child.pid, argv_of(child))]))
        assert runfile.end_children() == ["node"]
        assert child.poll() is not None
    assert runfile.read() is None


def test_another_process_with_the_same_pid_is_left_alone(tmp_path: Path) -> None:
    runfile = RunFile(tmp_path)
    with bystander() as stranger:
        seen = entry("node", stranger.pid, argv_of(stranger))
        other_age = msgspec.structs.replace(seen, started_s=seen.started_s - 3600)
        other_command = msgspec.structs.replace(seen, argv=["python", "-m", "inference"])
        runfile.write(Run("http://here", own_entry(), [other_age, other_command]))
        assert runfile.end_children() == []
        assert stranger.poll() is None
        assert living(seen) is not None


def test_a_broken_list_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"url": ')
    assert RunFile(tmp_path).read() is None
    assert RunFile(tmp_path).end_children() == []
