"""Starting and ending server processes: own session, bounded waits, and finding left-overs; and who
runs in a data folder: a lock that dies with its holder, and a list of the processes started.

A process counts as ours by what it is (its program and working folder), never by a pid in a file.
The list serves `status`, and the next start after a supervisor was killed. The lock decides.
"""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

import msgspec
import psutil

from controlplane.embedded.layout import ServerAccount

Say = Callable[[str], None]
POLL_SECONDS = 0.05
KILL_SECONDS_MAX = 5.0
LOG_BYTES_MAX = 20 * 2**20
LOG_MODE = 0o600
LOG_TAIL_LINES = 12
LOG_TAIL_BYTES = 16_384
LOG_LINE_CHARS_MAX = 300
# The clock that dates processes may be adjusted between two looks.
AGE_TOLERANCE_SECONDS = 5.0
END_SECONDS_MAX = 15.0


class ServerError(Exception):
    """A server could not be started or stopped; the message says what to do."""


def open_log(log: Path) -> BinaryIO:
    """A log to append to; one that is full becomes the log before it.

    A new one is its owner's alone: lines may hold values and addresses.
    """
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_suffix(".log.1"))
    return os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, LOG_MODE), "ab")


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    folder: Path,
    account: ServerAccount | None,
    stdin: bytes = b"",
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, as the account, with its output in `log`."""
    with open_log(log) as out:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            start_new_session=True,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )
    assert process.stdin is not None
    try:
        process.stdin.write(stdin)
        process.stdin.close()
    except BrokenPipeError:
        process.wait()
    return process


def end(process: subprocess.Popen[bytes], *steps: tuple[signal.Signals, float]) -> bool:
    """Signal step by step until the process is gone; True where a polite signal sufficed."""
    for number, (kind, seconds) in enumerate(steps):
        if process.poll() is None:
            process.send_signal(kind)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            continue
        return number == 0
    process.kill()
    process.wait()
    return False


def left_overs(program: str, folder: Path) -> list[psutil.Process]:
    """Living processes of a program whose working folder is `folder`."""
    found = []
    for process in psutil.process_iter(["name", "cwd"]):
        info = process.info
        if info["name"] == program and info["cwd"] == str(folder.resolve()):
            found.append(process)
    return found


def end_left_overs(program: str, folder: Path, *, polite: signal.Signals, seconds: float) -> int:
    """End what a killed predecessor left running in `folder`; returns how many there were."""
    found = left_overs(program, folder)
    ours = {process.pid for process in found}
    for process in found:
        # Only the head of a family is asked; a server ends its own workers.
        if _parent(process) not in ours:
            signal_quietly(process, polite)
    see_them_off(found, seconds=seconds)
    return len(found)


def see_them_off(asked: Sequence[psutil.Process], *, seconds: float) -> None:
    """Wait for processes that were asked to end, then kill those that have not."""
    if wait_until(lambda: not any(map(_lives, asked)), seconds=seconds):
        return
    for process in filter(_lives, asked):
        signal_quietly(process, signal.SIGKILL)
    if not wait_until(lambda: not any(map(_lives, asked)), seconds=KILL_SECONDS_MAX):
        stuck = next(filter(_lives, asked))
        raise ServerError(f"Process {stuck.pid} of an earlier start cannot be stopped.")


def wait_until(ready: Callable[[], bool], *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if ready():
            return True
        time.sleep(POLL_SECONDS)
    return False


def log_tail(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(line[:LOG_LINE_CHARS_MAX] for line in lines[-LOG_TAIL_LINES:])


def _parent(process: psutil.Process) -> int | None:
    try:
        parent: int = process.ppid()
    except psutil.NoSuchProcess:
        return None
    return parent


def _lives(process: psutil.Process) -> bool:
    try:
        # One that has ended stays listed until its parent, often not us, has taken note.
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def signal_quietly(process: psutil.Process, kind: signal.Signals) -> None:
    try:
        process.send_signal(kind)
    except psutil.NoSuchProcess:
        return


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
