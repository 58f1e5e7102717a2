"""Series as pages read them: histograms and usage by step, merged, never averaged.

The present minute is there too: writers' rows that no roll-up has seen are read beside the rest.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Max, Sum

from controlplane.kernel.histogram import Histogram
from controlplane.telemetry.models import (
    HistogramMinute,
    HistogramRollup,
    UsageMinute,
    UsageRollup,
)
from controlplane.telemetry.reading import bounded_read

EVERYONE = uuid.UUID(int=0)
MINUTE_S = 60
ROLLUP_S = 300
HOUR_S = 3_600
# Younger windows are rolled up while they fill, and again: their minutes are read instead.
SETTLED_AFTER = timedelta(minutes=20)
FIGURES = (
    "requests",
    "errors",
    "gone",
    "uncached",
    "cached",
    "output",
    "nano",
    "available",
    "captured",
)

HistogramRow = tuple[datetime, str, uuid.UUID, bytes | memoryview]


@dataclass
class UsageSum:
    """Counters added up; tokens in three buckets that do not overlap.

    `gone` are requests whose client left before the end; they are no `errors`. `available` prompt
    tokens were cached at the best node of the fleet, `captured` at the one that was chosen.
    """

    requests: int = 0
    errors: int = 0
    gone: int = 0
    uncached: int = 0
    cached: int = 0
    output: int = 0
    nano: int = 0
    available: int = 0
    captured: int = 0

    def add(self, other: UsageSum) -> None:
        """Add another sum to this one."""
        for name in FIGURES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Point:
    """One step from `at`: the installation's histograms, the organization's own, its usage."""

    at: datetime
    everyone: dict[str, Histogram] = field(default_factory=dict)
    own: dict[str, Histogram] = field(default_factory=dict)
    usage: UsageSum = field(default_factory=UsageSum)


@dataclass(frozen=True)
class SeriesQuery:
    """Which series: an organization, measures by name, [start, end) in steps.

    `model` and `project` narrow it where set; the installation's series know no projects.
    """

    organization: uuid.UUID
    start: datetime
    end: datetime
    step_s: int
    everyone: tuple[str, ...]
    own: tuple[str, ...]
    gauges: tuple[str, ...] = ()
    model: str = ""
    project: uuid.UUID | None = None

    @property
    def narrowed(self) -> dict[str, str]:
        """What every table is filtered by."""
        return {"model": self.model} if self.model else {}

    @property
    def narrowed_own(self) -> dict[str, str | uuid.UUID]:
        """The same for the organization's own rows."""
        own: dict[str, str | uuid.UUID] = {"organization": self.organization, **self.narrowed}
        return {**own, "project": self.project} if self.project else own


def step_floor(moment: datetime, step_s: int) -> datetime:
    """Start of the step that holds a moment; steps are counted from the epoch."""
    seconds = int(moment.timestamp()) // step_s * step_s
    return datetime.fromtimestamp(seconds, UTC)


def series_read(query: SeriesQuery) -> dict[datetime, Point]:
    """Points by the start of their step, only where something was recorded."""
    points: dict[datetime, Point] = {}
    with bounded_read([query.organization]):
        for step_s, start, end in _parts(query):
            for at, measure, organization, data in _histograms(query, step_s, start, end):
                point = _point(points, at, query.step_s)
                series = point.everyone if organization == EVERYONE else point.own
                found = Histogram.from_bytes(bytes(data))
                if measure in series:
                    series[measure].merge(found)
                else:
                    series[measure] = found
            for at, usage in _usage(query, step_s, start, end):
                _point(points, at, query.step_s).usage.add(usage)
    return points


def key_last_used(organization: uuid.UUID) -> dict[uuid.UUID, datetime]:
    """To the minute, when each key was last used; days ago to the step that is still kept."""
    used: dict[uuid.UUID, datetime] = {}
    with bounded_read([organization]):
        old = UsageRollup.objects.filter(organization=organization).values_list("key")
        new = UsageMinute.objects.filter(organization=organization).values_list("key")
        for key, at in old.annotate(last=Max("at")).order_by():
            used[key] = at
        for key, minute in new.annotate(last=Max("minute")).order_by():
            used[key] = max(minute, used.get(key, minute))
    return used


def _point(points: dict[datetime, Point], at: datetime, step_s: int) -> Point:
    floor = step_floor(at, step_s)
    if floor not in points:
        points[floor] = Point(floor)
    return points[floor]


def _parts(query: SeriesQuery) -> Iterator[tuple[int, datetime, datetime]]:
    """The coarsest stored step that fits, up to where it has been written; then finer ones."""
    start = step_floor(query.start, query.step_s)
    for step_s in (HOUR_S, ROLLUP_S):
        if query.step_s % step_s:
            continue
        edge = min(query.end, _written_to(step_s))
        if edge > start:
            yield step_s, start, edge
            start = edge
    yield MINUTE_S, start, query.end


def _written_to(step_s: int) -> datetime:
    """Until when roll-ups of a step are complete, whoever's they are."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT telemetry_rollup_last(%s)", [step_s])
        last: datetime | None = (cursor.fetchone() or (None,))[0]
    if last is None:
        return datetime.fromtimestamp(0, UTC)
    settled = step_floor(datetime.now(UTC) - SETTLED_AFTER, step_s)
    return min(last + timedelta(seconds=step_s), settled)


def _histograms(
    query: SeriesQuery, step_s: int, start: datetime, end: datetime
) -> Iterable[HistogramRow]:
    for wanted in _wanted(query):
        if step_s == MINUTE_S:
            minutes = HistogramMinute.objects.filter(minute__gte=start, minute__lt=end, **wanted)
            yield from minutes.values_list("minute", "measure", "organization", "data").iterator()
            continue
        rollups = HistogramRollup.objects.filter(step_s=step_s, at__gte=start, at__lt=end, **wanted)
        yield from rollups.values_list("at", "measure", "organization", "data").iterator()


def _wanted(query: SeriesQuery) -> Iterator[dict[str, Any]]:
    """Conditions, a question each: a measure may be wanted of everyone and not of one's own."""
    everyone = {"organization": EVERYONE}
    yield {**everyone, "measure__in": query.everyone, **query.narrowed}
    # A gauge has a series of all models together: added to theirs, it would count twice.
    yield {**everyone, "measure__in": query.gauges, "model": query.model}
    yield {"measure__in": query.own, **query.narrowed_own}


def _usage(
    query: SeriesQuery, step_s: int, start: datetime, end: datetime
) -> Iterator[tuple[datetime, UsageSum]]:
    sums = [Sum(name) for name in FIGURES]
    rows: Iterable[tuple[Any, ...]]
    if step_s == MINUTE_S:
        minutes = UsageMinute.objects.filter(
            minute__gte=start, minute__lt=end, **query.narrowed_own
        )
        rows = minutes.order_by().values_list("minute").annotate(*sums)
    else:
        rollups = UsageRollup.objects.filter(
            step_s=step_s, at__gte=start, at__lt=end, **query.narrowed_own
        )
        rows = rollups.order_by().values_list("at").annotate(*sums)
    for at, *figures in rows:
        # PostgreSQL sums bigint to numeric.
        yield at, UsageSum(*map(int, figures))
