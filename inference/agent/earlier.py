"""Nodes that an earlier agent of this host left: they drain by themselves, and are waited for.

Each node holds the lock of a file for as long as it lives; the file has the number of its process.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path

from inference.children import end_family
from inference.contract.hosts import ReplicaState

FILE_MODE = 0o600


class EarlierNode:
    """A node of an earlier agent, killed past its bound; the replica of its file's name waits."""

    def __init__(self, file: Path, wait_s: float) -> None:
        self.id = file.name
        self._file = file
        self._kill_at = time.monotonic() + wait_s

    @property
    def state(self) -> ReplicaState:
        told = "The node that an earlier agent started drains."
        return ReplicaState(id=self.id, phase="draining", message=told)

    def step(self) -> bool:
        """Whether it still lives; it is killed where it has taken too long."""
        lock = claim(self._file)
        if lock is not None:
            os.close(lock)
            self._file.unlink()
            return False
        if time.monotonic() >= self._kill_at:
            with contextlib.suppress(ValueError):
                end_family(int(self._file.read_text()))
        return True


def claim(file: Path) -> int | None:
    """A descriptor with the file's lock, for a child to inherit; None while a node has it."""
    lock = os.open(file, os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def note(lock: int, number: int) -> None:
    """Keep the number of the process that holds a lock."""
    os.truncate(lock, 0)
    os.pwrite(lock, str(number).encode(), 0)
