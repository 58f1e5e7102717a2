"""How a gateway process itself is, for `/metrics`: what its readiness says, and what the operating
system knows of it.
"""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from controlplane.bridge.fleet.handshakes import Handshakes
from controlplane.bridge.http.doors import Doors
from controlplane.bridge.record.traces import TraceQueue
from controlplane.telemetry.exposition import Kind

_STARTED_S = time.time()
_PROC = Path("/proc/self")
# Fields of /proc/self/stat after the command's name, which may hold blanks.
_USER_TICKS, _SYSTEM_TICKS, _PAGES = 11, 12, 21


class Figure(NamedTuple):
    """One family of one sample."""

    name: str
    kind: Kind
    text: str
    value: float


def readiness_figures(facts: Mapping[str, Any]) -> Iterator[Figure]:
    for name, text, fact in (
        ("sluice_gateway_ready", "1 while requests would be served", "ready"),
        ("sluice_ledger_connected", "1 while PostgreSQL can be asked for holds", "ledger"),
        ("sluice_limits_shared", "1 while rate limits are counted in Redis", "limits_shared"),
        ("sluice_gateways_alive", "Gateways that live, as this one knows", "gateways"),
        (
            "sluice_configuration_version",
            "Configuration version of this gateway",
            "configuration_version",
        ),
    ):
        yield Figure(name, "gauge", text, int(facts[fact]))


def trace_figures(traces: TraceQueue | None) -> Iterator[Figure]:
    """What became of traces; none where they are off."""
    if traces is None:
        return
    for name, text, value in (
        ("sluice_traces_exported_total", "Requests that a collector took", traces.exported),
        ("sluice_traces_dropped_total", "Requests whose trace was lost", traces.dropped),
    ):
        yield Figure(name, "counter", text, value)


def connection_figures(doors: Doors, handshakes: Handshakes) -> Iterator[Figure]:
    for name, text, value in (
        ("connections", "Connections refused, since too many were open", doors.refused_total),
        ("handshakes", "Handshakes refused, since too many waited", handshakes.refused_total),
    ):
        yield Figure(f"sluice_{name}_refused_total", "counter", text, value)


def process_figures() -> Iterator[Figure]:
    """The standard ones of a process; none where there is no /proc."""
    if not _PROC.exists():
        return
    fields = (_PROC / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    memory = int(fields[_PAGES]) * os.sysconf("SC_PAGE_SIZE")
    files = len(os.listdir(_PROC / "fd"))
    yield Figure(
        "process_cpu_seconds_total",
        "counter",
        "CPU time, user and system",
        ticks / os.sysconf("SC_CLK_TCK"),
    )
    yield Figure("process_resident_memory_bytes", "gauge", "Memory that is in RAM", memory)
    yield Figure("process_open_fds", "gauge", "Open files and sockets", files)
    yield Figure(
        "process_start_time_seconds", "gauge", "Unix time at which the process came up", _STARTED_S
    )
