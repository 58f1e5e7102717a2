"""Who runs in a data folder: a lock that dies with its holder, and a list of the processes started.

The list serves `status`, and the next start after a supervisor was killed. The lock decides.
"""

import fcntl
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import msgspec
import psutil

from controlplane.embedded.processes import see_them_off, signal_quietly

# The clock that dates processes may be adjusted between two looks.
AGE_TOLERANCE_SECONDS = 5.0
END_SECONDS_MAX = 15.0


class Entry(msgspec.Struct, frozen=True):
    """One process as it was started; a later process with its pid has another age or command."""

    name: str
    pid: int
    started_s: float
    argv: list[str]


class Run(msgspec.Struct, frozen=True):
    url: str
    supervisor: Entry
    children: list[Entry]


class RunFile:
    """The lock and the list of one data folder."""

    def __init__(self, data: Path) -> None:
        self._list = data / "run.json"
        self._lock_path = data / "run.lock"
        self._lock: TextIO | None = None

    def acquire(self) -> bool:
        """Take the lock; False where another supervisor lives."""
        lock = self._lock_path.open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def read(self) -> Run | None:
        """The list, or None where there is none that can be read."""
        try:
            return msgspec.json.decode(self._list.read_bytes(), type=Run)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def write(self, run: Run) -> None:
        partial = self._list.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(run))
        partial.replace(self._list)

    def clear(self) -> None:
        self._list.unlink(missing_ok=True)

    def end_children(self) -> list[str]:
        """End what a killed supervisor left running (call with the lock held); returns names."""
        run = self.read()
        if run is None:
            return []
        found = [(entry, process) for entry in run.children if (process := living(entry))]
        for _, process in found:
            signal_quietly(process, signal.SIGTERM)
        see_them_off([process for _, process in found], seconds=END_SECONDS_MAX)
        self.clear()
        return [entry.name for entry, _ in found]


def entry(name: str, pid: int, argv: Sequence[str]) -> Entry:
    """Describe a process that was just started, by the command that started it."""
    return Entry(name, pid, psutil.Process(pid).create_time(), list(argv))


def own_entry() -> Entry:
    return entry("supervisor", os.getpid(), psutil.Process().cmdline())


def living(known: Entry) -> psutil.Process | None:
    """The process of an entry, if it is still the same one."""
    try:
        process = psutil.Process(known.pid)
        same_age = abs(process.create_time() - known.started_s) < AGE_TOLERANCE_SECONDS
        # Between its start and its first instruction a process has an empty command line.
        if same_age and process.cmdline() in (known.argv, []):
            return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.Error:
        return None
    return None
