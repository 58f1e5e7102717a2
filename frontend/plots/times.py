"""Lines over time from histograms by step: percentiles, and those of the period before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from controlplane.kernel.histogram import Histogram
from frontend import formats
from frontend.cells import PERCENTILES
from frontend.plots.figure import Line

Histograms = Mapping[datetime, Histogram]
DASHES = ("solid", "dash", "dot")
BEFORE = "--muted"


def percentile_line(
    found: Histograms, times: Sequence[datetime], percent: int, color: str, dash: str = "solid"
) -> Line:
    """One percentile of microseconds, in milliseconds; a gap where nothing was recorded."""
    return Line(f"p{percent}", values_of(found, times, percent / 100), color, dash)


def percentile_lines(found: Histograms, times: Sequence[datetime], color: str) -> list[Line]:
    """p50, p95 and p99 of one thing: one colour, and a dash each."""
    return [
        percentile_line(found, times, percent, color, dash)
        for percent, dash in zip(PERCENTILES, DASHES, strict=True)
    ]


def before_line(before: Histograms, times: Sequence[datetime], percent: int) -> list[Line]:
    """The same percentile a period earlier, where there is anything to compare with."""
    if not before:
        return []
    values = values_of(before, times, percent / 100)
    return [Line(f"p{percent} of the period before", values, BEFORE, "longdash")]


def values_of(
    found: Histograms, times: Sequence[datetime], share: float, unit: float = formats.US_PER_MS
) -> list[float | None]:
    """A percentile at each time, in so many of the recorded unit."""
    values = []
    for at in times:
        value = found[at].percentile(share) if at in found else None
        values.append(None if value is None else value / unit)
    return values


def pick(
    steps: Mapping[datetime, Mapping[str, Histogram]], measure: str
) -> dict[datetime, Histogram]:
    """One measure of each step that has it."""
    return {at: found[measure] for at, found in steps.items() if measure in found}


def worst(line: Line, words: Callable[[str], str], nothing: str) -> str:
    """A finding on the greatest value of a line in milliseconds."""
    most = max((value for value in line.values if value is not None), default=None)
    return nothing if most is None else words(formats.duration(most * formats.US_PER_MS))
