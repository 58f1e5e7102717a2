"""Lines over time from histograms by step: percentiles, and those of the period before."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from controlplane.kernel.histogram import Histogram
from frontend.shared import formats
from frontend.shared.cells import PERCENTILES, SHARES
from frontend.shared.plots.figure import Line

Histograms = Mapping[datetime, Histogram]
DASHES = ("solid", "dash", "dot")
BEFORE = "--muted"


def percentile_lines(found: Histograms, times: Sequence[datetime], color: str) -> list[Line]:
    """p50, p95 and p99 of one thing: one colour, and a dash each."""
    columns = columns_of(found, times, SHARES)
    return [
        Line(f"p{percent}", values, color, dash)
        for percent, values, dash in zip(PERCENTILES, columns, DASHES, strict=True)
    ]


def before_line(before: Histograms, times: Sequence[datetime], percent: int) -> list[Line]:
    """The same percentile a period earlier, where there is anything to compare with."""
    if not before:
        return []
    values = values_of(before, times, percent / 100)
    return [Line(f"p{percent} of the previous period", values, BEFORE, "longdash")]


def values_of(
    found: Histograms, times: Sequence[datetime], share: float, unit: float = formats.US_PER_MS
) -> list[float | None]:
    """A percentile at each time, in so many of the recorded unit."""
    return columns_of(found, times, (share,), unit)[0]


def columns_of(
    found: Histograms,
    times: Sequence[datetime],
    shares: Sequence[float],
    unit: float = formats.US_PER_MS,
) -> list[list[float | None]]:
    """Several percentiles at each time, a list of values for each of them."""
    columns: list[list[float | None]] = [[] for _ in shares]
    for at in times:
        values = found[at].percentiles(shares) if at in found else [None] * len(shares)
        for column, value in zip(columns, values, strict=True):
            column.append(None if value is None else value / unit)
    return columns


def pick(
    steps: Mapping[datetime, Mapping[str, Histogram]], measure: str
) -> dict[datetime, Histogram]:
    return {at: found[measure] for at, found in steps.items() if measure in found}


def worst(line: Line, words: Callable[[str], str], nothing: str) -> str:
    """A finding on the greatest value of a line in milliseconds."""
    most = max((value for value in line.values if value is not None), default=None)
    return nothing if most is None else words(formats.duration(most * formats.US_PER_MS))
