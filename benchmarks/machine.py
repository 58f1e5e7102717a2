"""What a measurement ran on, and what a process has used of it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024
PACKAGES = ("Django", "uvicorn", "uvloop", "msgspec", "psycopg", "tokenizers", "torch")


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * PAGE_BYTES / MIB


def pin(pid: int, *cores: int) -> None:
    """Keep every thread of a process (0: this one) on these cores; on none named, on any."""
    every = set(range(os.cpu_count() or 1))
    for thread in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        os.sched_setaffinity(int(thread.name), every.intersection(cores) or every)


def describe() -> str:
    """One line: machine, load and versions."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    load = os.getloadavg()[0]
    cores = os.cpu_count()
    return f"{cores} cores, load {load:.1f}, Python {platform.python_version()}, {versions}"
