"""Seconds that each test file took when they were last recorded (`make test-durations`).

They only decide the order in which files are given to the processes of a run: `order.py`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("durations.json")
OPTION = "--record-durations"
HEAVIEST_SHOWN = 25


class Durations:
    """What is known of files; an unknown one counts as the median."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._median = median(seconds.values()) if seconds else 0.0

    def of(self, file: str) -> float:
        """Seconds of a file, by its path from the root."""
        return self._seconds.get(file, self._median)


def read() -> dict[str, float]:
    """What was last recorded."""
    seconds: dict[str, float] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return seconds


class Recorder:
    """Adds up what the files of a run take, with their fixtures, and keeps it at the end."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown of each test, of every process."""
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The heaviest, and where all are; files that no longer exist are forgotten."""
        known = {**read(), **{file: round(s, 1) for file, s in self._seconds.items()}}
        kept = {file: known[file] for file in sorted(known) if (ROOT / file).exists()}
        KEPT.write_text(json.dumps(kept, indent=0) + "\n")
        total = sum(self._seconds.values())
        terminalreporter.section(f"{total:.0f} s of tests, now in {KEPT.relative_to(ROOT)}")
        heaviest = sorted(self._seconds.items(), key=lambda pair: -pair[1])[:HEAVIEST_SHOWN]
        for file, seconds in heaviest:
            terminalreporter.write_line(f"{seconds:7.1f} s  {file}")
