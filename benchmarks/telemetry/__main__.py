"""`make bench-telemetry`: CPU and memory of recording; pages over 30 days and over long lists.

The past is synthetic: roll-ups as gateways and jobs would have left them, in a real PostgreSQL,
read by a real web process, and looked at by a real Chromium.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string

from benchmarks.machine import describe
from benchmarks.recorder import Recorder
from benchmarks.stack import stack

Run = Callable[[Recorder], dict[str, Any]]
Pages = Callable[[Recorder, dict[str, int]], dict[str, Any]]
# Of 100 million rows, which take half an hour to write and 50 GB, a tenth by itself.
REQUESTS, AUDIT_ROWS = 10_000_000, 10_000_000
RECORDING = "record_cpu_us", "mib_10k_series", "max_relative_error"
PAGES = (
    "page_30d_cpu_ms",
    "page_1h_cpu_ms",
    "page_1h_postgres_ms",
    "interactive_s",
    "charts_first_s",
    "charts_repeat_s",
)


def main() -> int:
    """Print the table and, last, the JSON line; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="bench-telemetry", description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="rows of requests")
    parser.add_argument("--audit", type=int, default=AUDIT_ROWS, help="rows of audit")
    asked = parser.parse_args()
    print(f"bench-telemetry: {describe()}")
    recorder = Recorder("telemetry", requests=asked.requests, audit=asked.audit)
    # Not on a memory disk alone: `stack` flushes as the product does.
    with stack():
        os.environ["SLUICE_ROLE"] = "web"
        # Imported late, since they need the applications that `stack` sets up.
        recording: Run = import_string("benchmarks.telemetry.recording.run")
        pages: Pages = import_string("benchmarks.telemetry.pages.run")
        fits = import_string("benchmarks.telemetry.crowd.requests_that_fit")
        crowd = {"requests": fits(asked.requests), "audit": asked.audit}
        figures = recording(recorder) | pages(recorder, crowd)
    missed = show(figures)
    recorder.finish(figures)
    return 1 if missed else 0


BARS = {
    "record_cpu_us": 30.0,
    "page_30d_cpu_ms": 300.0,
    "page_1h_cpu_ms": 100.0,
    "interactive_s": 1.5,
    "charts_first_s": 2.0,
    "charts_repeat_s": 1.0,
    "max_relative_error": 0.011,
}


def show(figures: dict[str, Any]) -> list[str]:
    """The main figures beside their bars; answers with those that miss theirs."""
    missed = []
    print(f"\n{'figure':24} {'measured':>12} {'bar':>8}")
    for name in (*RECORDING, *PAGES):
        value, bar = figures[name], BARS.get(name)
        over = bar is not None and (value is None or value > bar)
        if over:
            missed.append(name)
        told = "-" if value is None else f"{value:.4g}"
        print(f"{name:24} {told:>12} {'' if bar is None else bar:>8} {'over' if over else ''}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
