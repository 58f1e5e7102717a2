"""Sums over all tenants from series: by pool or region, the busiest step, batching."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from controlplane.kernel.gauges import BATCH
from controlplane.kernel.histogram import Histogram, merge_all
from controlplane.telemetry.selectors import EVERYONE, SeriesQuery, series_by, series_read

TOTAL = "total"
# Steps in which a peak is looked for: the finest of which a range has a readable number.
PEAK_STEPS_S = (60, 300, 900, 3_600)
PEAK_POINTS_MAX = 1_440


def merged_by(
    dimension: str, measures: tuple[str, ...], start: datetime, end: datetime
) -> dict[str, dict[str, Histogram]]:
    """Histograms of the whole range by a dimension's value; raises TooMuchToRead."""
    query = SeriesQuery(
        organization=EVERYONE, start=start, end=end, step_s=3_600, everyone=measures
    )
    return series_by(query, dimension)


def peaks(models: Iterable[str], start: datetime, end: datetime) -> float:
    """Requests a second in the busiest step, of these models together."""
    step_s = _step_s(end - start)
    counts: Counter[datetime] = Counter()
    for model in models:
        query = SeriesQuery(
            organization=EVERYONE, start=start, end=end, step_s=step_s, everyone=(TOTAL,),
            model=model,
        )  # fmt: skip
        for at, point in series_read(query).items():
            if TOTAL in point.everyone:
                counts[at] += point.everyone[TOTAL].count
    return max(counts.values(), default=0) / step_s


def batching(models: Iterable[str], start: datetime, end: datetime) -> float:
    """Sequences in a node's step, on the average while it had any; at least 1."""
    found = []
    for model in models:
        query = SeriesQuery(
            organization=EVERYONE, start=start, end=end, step_s=3_600, gauges=(BATCH,), model=model
        )
        found += [
            point.everyone[BATCH]
            for point in series_read(query).values()
            if BATCH in point.everyone
        ]
    whole = merge_all(found)
    busy = whole.count - whole.zeros
    return max(1.0, whole.total / busy) if busy else 1.0


def _step_s(length: timedelta) -> int:
    return next(
        (step for step in PEAK_STEPS_S if length.total_seconds() / step <= PEAK_POINTS_MAX),
        PEAK_STEPS_S[-1],
    )
