"""`make bench-gateway`: what the gateway costs with every feature on, against an echo node.

For CPU and throughput the gateway has one core to itself; PostgreSQL, Redis, the node and the load
share the other. For latency at one client nothing is pinned. CPU is user and system time of the
server's process. The control is bare uvicorn, which runs beside the gateway: both are measured in
turns, in short passes, so that a host that drifts changes both. Figures are medians of passes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.utils.module_loading import import_string

from benchmarks.gateway import figures, groups
from benchmarks.gateway.turns import CLIENTS, FULL, Run
from benchmarks.gateway.two import two_gateways
from benchmarks.machine import describe, pin
from benchmarks.recorder import Recorder
from benchmarks.stack import OTHER_CORE, stack


def measure(run: Run) -> dict[str, Any]:
    """All groups, then the figures."""
    for group in groups.COMPARED.values():
        group(run)
    foreign = round(run.foreign_share, 3)
    groups.one_client(run)
    groups.lone(run)
    two_gateways(run)
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / "samples.json"
        groups.sampled(run, samples)
        counts = json.loads(samples.read_text())
    # Imported late, since it needs the applications that `stack` sets up.
    features = import_string("benchmarks.limits.features_seen")()
    found = figures.figures(run.recorder)
    parts = figures.stages(counts, found["cpu_ms_per_request"])
    return {
        **found,
        "features_on": features,
        "stages_us": parts,
        "core_share_of_others": foreign,
        "errors": run.errors,
    }


def main() -> int:
    """Print the table and, last, the JSON line; 1 when a request failed."""
    pin(0, OTHER_CORE)
    print(f"bench-gateway: {describe()}")
    recorder = Recorder("gateway", **asdict(FULL), clients=CLIENTS)
    with stack() as made:
        found = measure(Run(made, recorder, FULL))
    figures.show(found)
    recorder.finish(found)
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
