"""Keeps Python children running: starts them, restarts the dead with back-off, stops all in order.

It knows nothing of what they do; `stack.py` lists them.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent

from controlplane.embedded.processes import Entry, Say, end, entry, log_tail, open_log
from inference.children import Restarts, end_family

# Clear of the column that holds the time in front of the first line.
LOG_INDENT = " " * 10


@dataclass(frozen=True)
class Child:
    """One process to keep. `turn` orders the end: all of turn 0 are gone before turn 1 is asked."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    turn: int
    stop_seconds_max: float


@dataclass
class _Running:
    child: Child
    process: subprocess.Popen[bytes] | None = None
    known: Entry | None = None
    # Bytes of its log before this start.
    logged: int = 0
    restarts: Restarts = field(default_factory=Restarts)
    deaths: int = field(default=0)
    kill_at: float | None = None


class Supervisor:
    def __init__(self, *, folder: Path, logs: Path, say: Say) -> None:
        self._folder = folder
        self._logs = logs
        self._say = say
        self._running: list[_Running] = []

    @property
    def entries(self) -> list[Entry]:
        return [slot.known for slot in self._running if slot.known is not None]

    def add(self, child: Child) -> None:
        slot = _Running(child)
        self._running.append(slot)
        self._start(slot)

    def look(self) -> bool:
        """Note deaths and start what is due; True where the list of processes changed."""
        changed = False
        now = time.monotonic()
        for slot in list(self._running):
            if slot.kill_at is not None:
                changed |= self._see_off(slot, now)
            elif slot.process is not None and slot.process.poll() is not None:
                self._bury(slot, now)
                changed = True
            elif slot.process is None and now >= slot.restarts.retry_at:
                changed |= self._start_again(slot, now)
        return changed

    def said(self, name: str, opening: str) -> str:
        """The rest of the last line with these words that a child has logged since its start."""
        slot = next(each for each in self._running if each.child.name == name)
        with self._log(slot.child).open("rb") as log:
            log.seek(slot.logged)
            lines = log.read().decode(errors="replace").splitlines()
        found = [line.partition(opening)[2] for line in lines if opening in line]
        return found[-1] if found else ""

    def keeps(self, name: str) -> bool:
        """Whether there is a child of that name, also one that is about to end for good."""
        return any(slot.child.name == name for slot in self._running)

    def retire(self, name: str) -> None:
        """Ask a child to end for good; `look` lets it go then, or kills it past its bound."""
        slot = next(each for each in self._running if each.child.name == name)
        self._terminate(slot)
        slot.kill_at = time.monotonic() + slot.child.stop_seconds_max

    def stop(self) -> None:
        for turn in sorted({slot.child.turn for slot in self._running}):
            slots = [slot for slot in self._running if slot.child.turn == turn and slot.process]
            for slot in slots:
                self._terminate(slot)
            for slot in slots:
                self._finish(slot)
        self._running.clear()

    def _start(self, slot: _Running) -> None:
        with open_log(self._log(slot.child)) as out:
            slot.logged = out.tell()
            # A session of its own: Ctrl-C on the terminal reaches only the supervisor.
            slot.process = subprocess.Popen(
                slot.child.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**os.environ, **slot.child.env},
                start_new_session=True,
            )
        slot.known = entry(slot.child.name, slot.process.pid, slot.child.argv)
        slot.restarts.started = time.monotonic()

    def _start_again(self, slot: _Running, now: float) -> bool:
        """False where there is no room even for that: it is tried again like any other."""
        try:
            self._start(slot)
        except OSError as error:
            self._say(f"{slot.child.name} cannot be started: {error}")
            slot.restarts.put_off(now)
            return False
        self._say(f"{slot.child.name} restarted")
        return True

    def _bury(self, slot: _Running, now: float) -> None:
        assert slot.process is not None
        if slot.restarts.recovered(now):
            slot.deaths = 0
        self._say(
            f"{slot.child.name} ended with status {slot.process.returncode}, next try in "
            f"{slot.restarts.pause_s:.1f} s; its log is {self._log(slot.child)}"
        )
        if slot.deaths == 0:
            self._say_log(slot.child)
        end_family(slot.process.pid)
        slot.process, slot.known = None, None
        slot.deaths += 1
        slot.restarts.put_off(now)

    def _see_off(self, slot: _Running, now: float) -> bool:
        assert slot.kill_at is not None
        if slot.process is not None and slot.process.poll() is None:
            if now < slot.kill_at:
                return False
            self._finish(slot)
        self._running.remove(slot)
        return True

    def _say_log(self, child: Child) -> None:
        if tail := log_tail(self._log(child)):
            self._say("last lines of its log:\n" + indent(tail, LOG_INDENT))

    def _terminate(self, slot: _Running) -> None:
        if slot.process is not None and slot.process.poll() is None:
            slot.process.send_signal(signal.SIGTERM)

    def _finish(self, slot: _Running) -> None:
        assert slot.process is not None
        try:
            slot.process.wait(timeout=slot.child.stop_seconds_max)
        except subprocess.TimeoutExpired:
            self._say(f"{slot.child.name} did not stop in {slot.child.stop_seconds_max:.0f} s")
            end(slot.process, (signal.SIGKILL, 1.0))
        end_family(slot.process.pid)

    def _log(self, child: Child) -> Path:
        return self._logs / f"{child.name}.log"
