"""What a measurement ran on, and what a process has used of it."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

# The kernel's clock of what all threads of a process have run, in nanoseconds where `/proc` has
# ticks of 10 ms (`clock_getcpuclockid`).
PROCESS_CLOCK = 2
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024
ISA_FLAGS = (
    "f16c", "fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8",
)  # fmt: skip
PACKAGES = ("Django", "uvicorn", "uvloop", "msgspec", "psycopg", "tokenizers", "torch")


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    return time.clock_gettime(~pid << 3 | PROCESS_CLOCK)


def core_busy_s(core: int) -> float:
    """What a core has run of any process so far, or was kept from running by its host."""
    line = Path("/proc/stat").read_text().splitlines()[1 + core].split()
    user, nice, system, _, _, _, _, steal = map(int, line[1:9])
    return (user + nice + system + steal) / TICKS_PER_S


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * PAGE_BYTES / MIB


def pin(pid: int, *cores: int) -> None:
    """Keep every thread of a process (0: this one) on these cores; on none named, on any."""
    every = set(range(os.cpu_count() or 1))
    for thread in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
        os.sched_setaffinity(int(thread.name), every.intersection(cores) or every)


def cpu_model() -> str:
    """The name that the CPU gives itself, with family and model, since hosts may cut the name."""
    family, model = _cpuinfo("cpu family"), _cpuinfo("model")
    return f"{_cpuinfo('model name')} (family {family}, model {model})"


def cpu_flags() -> list[str]:
    """Which of the instruction sets that engines choose among it has."""
    told = set(_cpuinfo("flags").split())
    return [flag for flag in ISA_FLAGS if flag in told]


def _cpuinfo(field: str) -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, text = line.partition(":")
        if name.strip() == field:
            return text.strip()
    return ""


def versions() -> dict[str, str]:
    """Of Python and of what the figures depend on most."""
    return {"Python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def describe() -> str:
    """One line: machine, load and versions."""
    told = ", ".join(f"{name} {number}" for name, number in versions().items())
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {told}"
