"""Sums over all tenants from series: by pool or region, the busiest step, batching."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from controlplane.kernel.histogram import Histogram, merge_all
from controlplane.kernel.insights.capacity import Slowed
from controlplane.kernel.measures import BATCH, SHED
from controlplane.telemetry import selectors
from controlplane.telemetry.tiers import HOUR_S, MINUTE_S, QUARTER_S, finest_kept

# Each request has the first; only one that a node began has the second.
TOTAL, PREFILL, DECODE = "total", "prefill", "decode"
# Steps in which a peak is looked for: the finest of which a range has a readable number.
PEAK_STEPS_S = (60, 300, 900, 3_600)
PEAK_POINTS_MAX = 1_440


class Peak(NamedTuple):
    """Requests a second, each in its own busiest step: `asked` for, and `ran` on a node.

    `rise_per_min` is by how much of those that ran it grew at most from a step to the next.
    """

    asked: float
    ran: float
    rise_per_min: float = 0.0


def whole_query(start: datetime, end: datetime, **what: Any) -> selectors.SeriesQuery:
    """Of all tenants, for sums over the whole range."""
    step_s = coarse_s(end - start)
    return selectors.SeriesQuery(
        organization=selectors.EVERYONE, start=start, end=end, step_s=step_s, **what
    )


def merged_by(
    dimension: str, measures: tuple[str, ...], start: datetime, end: datetime
) -> dict[str, dict[str, Histogram]]:
    """Histograms of the whole range by a dimension's value; raises TooMuchToRead."""
    return selectors.series_by(whole_query(start, end, everyone=measures), dimension)


def parts_by_pool(
    models: Mapping[str, str], start: datetime, end: datetime
) -> dict[str, dict[str, float]]:
    """By pool, the part of each model's requests that ran there, where it had any: all in the
    model's own pool, to which `models` maps it, unless rules sent some elsewhere."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for model, own in models.items():
        query = whole_query(start, end, everyone=(PREFILL,), model=model)
        told = selectors.series_by(query, "pool")
        counts = {pool: one[PREFILL].count for pool, one in told.items()}
        whole = sum(counts.values())
        for pool, count in counts.items() if whole else [(own, 0)]:
            found[pool][model] = count / whole if whole else 1.0
    return found


def peaks(parts: Mapping[str, float], start: datetime, end: datetime) -> Peak:
    """Of these parts of models' requests; raises TooMuchToRead."""
    step_s = _step_s(start, end)
    measures = (TOTAL, PREFILL)
    counts: dict[str, dict[datetime, float]] = {each: defaultdict(float) for each in measures}
    for model, part in parts.items():
        for opens, closes in _stretches(start, end, step_s):
            query = selectors.SeriesQuery(
                organization=selectors.EVERYONE, start=opens, end=closes, step_s=step_s,
                everyone=measures, model=model,
            )  # fmt: skip
            for at, point in selectors.series_read(query).items():
                for measure in measures:
                    if measure in point.everyone:
                        counts[measure][at] += part * point.everyone[measure].count
    asked, ran = (max(counts[measure].values(), default=0) / step_s for measure in measures)
    ran_by, step = counts[PREFILL], timedelta(seconds=step_s)
    rise = max((count - ran_by.get(at - step, 0.0) for at, count in ran_by.items()), default=0)
    return Peak(asked, ran, rise / step_s / (step_s / MINUTE_S))


def rates(
    parts: Mapping[str, float], start: datetime, end: datetime, step_s: int
) -> dict[int, float]:
    """Requests a second that nodes began, or that were refused since there was no room for them,
    by the start of each step since the epoch, of these parts of models' requests; raises
    TooMuchToRead."""
    found: dict[int, float] = defaultdict(float)
    for model, part in parts.items():
        query = selectors.SeriesQuery(
            organization=selectors.EVERYONE, start=start, end=end, step_s=step_s,
            everyone=(PREFILL, SHED), model=model,
        )  # fmt: skip
        for at, point in selectors.series_read(query).items():
            count = sum(one.count for one in point.everyone.values())
            found[int(at.timestamp())] += part * count
    return {at: count / step_s for at, count in sorted(found.items())}


def slowed(
    models: Iterable[str], organizations: Iterable[UUID], start: datetime, end: datetime
) -> list[Slowed]:
    """By steps in which tokens were made: how large a batch was, and how long a token took."""
    ids, step_s = list(organizations), _step_s(start, end)
    found = []
    for model in models:
        for opens, closes in _stretches(start, end, step_s):
            query = selectors.SeriesQuery(
                organization=selectors.EVERYONE, start=opens, end=closes, step_s=step_s,
                everyone=(DECODE,), gauges=(BATCH,), model=model,
            )  # fmt: skip
            wanted = {"organization__in": ids, "model": model}
            used = selectors.usage_sums(ids, query.span, wanted, selectors.TIME)
            for at, point in selectors.series_read(query).items():
                batch, tokens = point.everyone[BATCH], used.get((at,), selectors.UsageSum()).output
                busy = batch.count - batch.zeros
                if busy and tokens and point.everyone[DECODE].count:
                    token_us = point.everyone[DECODE].total / tokens
                    found.append(Slowed(max(1.0, batch.total / busy), token_us, tokens))
    return found


def batching(models: Iterable[str], start: datetime, end: datetime) -> float:
    """Sequences in a node's step, on the average while it had any; at least 1."""
    found = []
    for model in models:
        query = whole_query(start, end, gauges=(BATCH,), model=model)
        if BATCH in (told := selectors.series_whole(query)):
            found.append(told[BATCH])
    whole = merge_all(found)
    busy = whole.count - whole.zeros
    return max(1.0, whole.total / busy) if busy else 1.0


def _step_s(start: datetime, end: datetime) -> int:
    """Never finer than what is kept: an hour's requests would be taken for a quarter's."""
    length, least = (end - start).total_seconds(), finest_kept(start)
    return next(
        (step for step in PEAK_STEPS_S if step >= least and length / step <= PEAK_POINTS_MAX),
        PEAK_STEPS_S[-1],
    )


def coarse_s(length: timedelta) -> int:
    """For sums over all of it, where the step says only where it may begin."""
    return HOUR_S if length / timedelta(seconds=HOUR_S) <= selectors.POINTS_MAX else QUARTER_S


def _stretches(start: datetime, end: datetime, step_s: int) -> Iterator[tuple[datetime, datetime]]:
    """The range in parts of not too many steps."""
    width = timedelta(seconds=step_s * PEAK_POINTS_MAX)
    while start < end:
        yield start, min(end, start + width)
        start += width
