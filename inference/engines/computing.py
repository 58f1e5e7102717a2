"""A step in progress, and whether it computes: a thread or process that hangs uses no CPU time."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

PROCESSES = Path("/proc")
THREADS = PROCESSES / "self/task"
# Counted from the parenthesis that closes the command's name: time in user mode, and in the kernel.
USER_FIELD, SYSTEM_FIELD = 11, 12


class Computing(NamedTuple):
    """The requests of a step, when it began, and how to read the CPU seconds of what computes it.

    `began_s` is on the monotonic clock, `cpu_s` counts from any beginning.
    """

    requests: list[bytes]
    began_s: float
    cpu_s: Callable[[], float]


def thread_cpu_s(native_id: int) -> float:
    """What a thread of this process has used so far, in steps of 10 ms; 0 where it is not known."""
    return _cpu_s(THREADS / str(native_id))


def children_cpu_s() -> float:
    """The same of all processes that this one has started, and of those that they have."""
    return sum(map(_cpu_s, _below(PROCESSES / "self")))


def _below(process: Path) -> Iterator[Path]:
    for children in process.glob("task/*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                yield PROCESSES / child
                yield from _below(PROCESSES / child)


def _cpu_s(account: Path) -> float:
    try:
        fields = (account / "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[USER_FIELD]) + int(fields[SYSTEM_FIELD])
    except (OSError, ValueError, IndexError):
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK")
