"""The supervisor: a dead child comes back, and stopping leaves nothing, grandchildren included."""

import sys
import time
from pathlib import Path

import psutil

from controlplane.embedded.supervisor import Child, Supervisor
from tests.support.waiting import WAIT_S_MAX, wait_for

SLEEP = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
FAMILY = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); "


def child(name: str, code: str, *, turn: int = 0, stop_seconds_max: float = 30.0) -> Child:
    return Child(name, [sys.executable, "-c", code], {"COLOUR": "blue"}, turn, stop_seconds_max)


def made(tmp_path: Path) -> tuple[Supervisor, list[str]]:
    said: list[str] = []
    return Supervisor(folder=tmp_path, logs=tmp_path, say=said.append), said


def test_a_killed_child_is_started_again_and_both_are_said(tmp_path: Path) -> None:
    supervisor, said = made(tmp_path)
    supervisor.add(child("node", SLEEP))
    try:
        first = supervisor.entries[0].pid
        psutil.Process(first).kill()
        wait_for(supervisor.look)
        assert supervisor.entries == []
        wait_for(supervisor.look)
        assert supervisor.entries[0].pid != first
        assert any("ended with status -9" in line for line in said)
        assert "node restarted" in said
    finally:
        supervisor.stop()


def test_a_child_that_keeps_failing_waits_longer_each_time(tmp_path: Path) -> None:
    supervisor, said = made(tmp_path)
    supervisor.add(child("node", "raise SystemExit('no model here')"))
    try:
        wait_for(lambda: supervisor.look() and any("try in 1.0 s" in line for line in said))
        assert any("try in 0.5 s" in line for line in said)
        (tail,) = [line for line in said if "no model here" in line]
        assert tail.splitlines()[0] == "last lines of its log:"
        assert all(line.startswith("    ") for line in tail.splitlines()[1:])
    finally:
        supervisor.stop()


def test_stop_ends_grandchildren_and_bounds_the_stubborn(tmp_path: Path) -> None:
    supervisor, said = made(tmp_path)
    supervisor.add(child("family", FAMILY + SLEEP))
    supervisor.add(child("stubborn", STUBBORN + SLEEP, turn=1, stop_seconds_max=0.5))
    heads = [psutil.Process(known.pid) for known in supervisor.entries]
    wait_for(lambda: len(heads[0].children()) == 1)
    everyone = heads + heads[0].children()
    time.sleep(0.3)
    supervisor.stop()
    _, alive = psutil.wait_procs(everyone, timeout=WAIT_S_MAX)
    assert alive == []
    assert said == ["stubborn did not stop in 0 s"] or said == []


def test_the_environment_reaches_the_child_and_its_output_the_log(tmp_path: Path) -> None:
    supervisor, _ = made(tmp_path)
    supervisor.add(child("env", f"import os; print(os.environ['COLOUR'], flush=True); {SLEEP}"))
    try:
        wait_for(lambda: (tmp_path / "env.log").read_text() == "blue\n")
    finally:
        supervisor.stop()


def test_what_a_child_says_is_of_its_present_start(tmp_path: Path) -> None:
    (tmp_path / "talks.log").write_text("before: it runs on air\n")
    supervisor, _ = made(tmp_path)
    supervisor.add(child("silent", SLEEP))
    supervisor.add(child("talks", f"print('now: it runs on steam', flush=True); {SLEEP}"))
    try:
        wait_for(lambda: "steam" in (tmp_path / "talks.log").read_text())
        assert supervisor.said("talks", "it runs on ") == "steam"
        assert supervisor.said("talks", "before") == supervisor.said("silent", "it runs on ") == ""
    finally:
        supervisor.stop()


def test_a_child_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    supervisor, said = made(tmp_path)
    program = tmp_path / "program"
    program.symlink_to(sys.executable)
    supervisor.add(Child("node", [str(program), "-c", SLEEP], {}, 0, 30.0))
    try:
        psutil.Process(supervisor.entries[0].pid).kill()
        program.unlink()
        for _ in range(2):
            said.clear()
            wait_for(lambda: not supervisor.look() and "cannot be started" in " ".join(said))
        assert supervisor.entries == []
        program.symlink_to(sys.executable)
        wait_for(lambda: supervisor.look() and bool(supervisor.entries))
    finally:
        supervisor.stop()
