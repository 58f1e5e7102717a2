"""Series as pages read them: histograms and usage by step, merged, never averaged.

The present minute is there too: writers' rows that no roll-up has seen are read beside the rest.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

from django.db.models import BigIntegerField, F, Max, QuerySet, Sum
from django.db.models.functions import Abs, Cast, Extract

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import KNOWN
from controlplane.telemetry import models, tiers
from controlplane.telemetry.reading import bounded_read

EVERYONE = uuid.UUID(int=0)
# The dimension of series that have none but their model.
WHOLE = 0
# The start of a step, where series are grouped by it.
TIME = "time"
POINTS_MAX = 1_500
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
# Dimensions of series, and their values where a series has another one.
DIMENSIONS = ("route", "pool", "region", "prompt_bucket", "status_class")
CACHE_DIMENSIONS = ("model", "route", "project", "key")

# By minute, and rolled up.
HISTOGRAMS = models.HistogramMinute, models.HistogramRollup
USAGE = models.UsageMinute, models.UsageRollup
# Seconds since the epoch rather than a time: there are thousands of rows, and of times few.
HistogramRow = tuple[int, str, uuid.UUID, memoryview]
_SECOND = {name: Cast(Extract(name, "epoch"), BigIntegerField()) for name in ("minute", "at")}


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
        for name in FIGURES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def take(self, other: UsageSum) -> None:
        """The opposite: what is left without it."""
        for name in FIGURES:
            setattr(self, name, getattr(self, name) - getattr(other, name))


@dataclass
class Point:
    """One step from `at`: the installation's histograms, the organization's own, its usage."""

    at: datetime
    everyone: dict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    own: dict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    usage: UsageSum = field(default_factory=UsageSum)


@dataclass(frozen=True)
class SeriesQuery:
    """Which series: an organization, measures by name, [start, end) in steps.

    `model` and `project` narrow it where set; the installation's series know no projects. Raises
    ValueError for a measure that no one records, and for more than `POINTS_MAX` steps.
    """

    organization: uuid.UUID
    start: datetime
    end: datetime
    step_s: int
    everyone: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    gauges: tuple[str, ...] = ()
    model: str = ""
    project: uuid.UUID | None = None

    def __post_init__(self) -> None:
        unknown = {*self.everyone, *self.own, *self.gauges} - KNOWN
        if unknown:
            raise ValueError(f"measures: {', '.join(sorted(unknown))} is not recorded")
        if (self.end - self.start) / timedelta(seconds=self.step_s) > POINTS_MAX:
            raise ValueError(f"step_s: more than {POINTS_MAX} steps")

    @property
    def span(self) -> tiers.TierRange:
        return tiers.TierRange(self.step_s, self.start, self.end)

    @property
    def narrowed_usage(self) -> dict[str, str | uuid.UUID]:
        found: dict[str, str | uuid.UUID] = {"organization": self.organization}
        if self.model:
            found["model"] = self.model
        return {**found, "project": self.project} if self.project else found


def series_read(query: SeriesQuery) -> dict[datetime, Point]:
    """Points by the start of their step, only where something was recorded."""
    points: dict[datetime, Point] = {}
    with bounded_read([query.organization]):
        for part in tiers.parts_by_step(query.start, query.end, query.step_s):
            floor = cache(partial(_step_of, step_s=query.step_s))
            for second, measure, organization, data in _histograms(query, part):
                point = _point(points, floor(second))
                series = point.everyone if organization == EVERYONE else point.own
                series[measure].add_bytes(data)
            for (at,), usage in _usage(part, query.narrowed_usage, _column(part)):
                _point(points, tiers.step_floor(at, query.step_s)).usage.add(usage)
    return points


def series_whole(query: SeriesQuery) -> dict[str, Histogram]:
    """The installation's `query.everyone` and `query.gauges` over the whole time, in few rows.

    The step says only on what the time may begin; it ends where it is asked to.
    """
    found: dict[str, Histogram] = defaultdict(Histogram)
    with bounded_read([]):
        for part in tiers.parts_merged(query.start, query.end, query.step_s):
            for _, measure, _, data in _histograms(query, part):
                found[measure].add_bytes(data)
    return dict(found)


def series_by(query: SeriesQuery, dimension: str) -> dict[str, dict[str, Histogram]]:
    """The installation's `query.everyone` over the whole time, by value of a dimension.

    It is `model` or one of `DIMENSIONS`; the latter have headlines and events of requests only.
    Numbers of prompt buckets and classes of status (`2` for 200 to 299) come as text. Raises
    ValueError for another dimension.
    """
    if dimension != "model" and dimension not in DIMENSIONS:
        raise ValueError(f"dimension: {dimension} is not one of model, {', '.join(DIMENSIONS)}")
    wanted: dict[str, Any] = {
        "organization": EVERYONE,
        "project": EVERYONE,
        "measure__in": query.everyone,
        "dimension": WHOLE if dimension == "model" else 1 + DIMENSIONS.index(dimension),
    }
    if query.model:
        wanted["model"] = query.model
    elif dimension == "model":
        wanted["model__gt"] = ""
    found: dict[str, dict[str, Histogram]] = {}
    with bounded_read([]):
        for part in tiers.parts_merged(query.start, query.end, query.step_s):
            rows = _rows(part, wanted).values_list(dimension, "measure", "data")
            for value, measure, data in rows:
                found.setdefault(str(value), defaultdict(Histogram))[measure].add_bytes(data)
    return found


def cache_by(query: SeriesQuery, dimension: str) -> dict[str, UsageSum]:
    """The organization's usage over the whole time, by value of one of `CACHE_DIMENSIONS`.

    Ids come as text with hyphens. Raises ValueError for another dimension.
    """
    if dimension not in CACHE_DIMENSIONS:
        known = ", ".join(CACHE_DIMENSIONS)
        raise ValueError(f"dimension: {dimension} is not one of {known}")
    found = usage_sums([query.organization], query.span, query.narrowed_usage, dimension)
    return {str(value): usage for (value,), usage in found.items()}


def usage_sums(
    seen: Iterable[uuid.UUID], span: tiers.TierRange, wanted: dict[str, Any], *columns: str
) -> dict[tuple[Any, ...], UsageSum]:
    """Usage of what is wanted over the whole time, by columns, within the scope of those seen.

    A column may be `TIME`. Raises TooMuchToRead.
    """
    found: dict[tuple[Any, ...], UsageSum] = defaultdict(UsageSum)
    with bounded_read(seen):
        for part, own in _parts(span, columns):
            for values, usage in _usage(part, wanted, *own):
                found[_stepped(values, span)].add(usage)
    return dict(found)


def histograms_by(
    seen: Iterable[uuid.UUID], span: tiers.TierRange, wanted: dict[str, Any], *columns: str
) -> dict[tuple[Any, ...], Histogram]:
    """Histograms merged over the whole time, in the same way."""
    found: dict[tuple[Any, ...], Histogram] = defaultdict(Histogram)
    with bounded_read(seen):
        for part, own in _parts(span, columns):
            for *values, data in _rows(part, wanted).values_list(*own, "data"):
                found[_stepped(values, span)].add_bytes(data)
    return dict(found)


def _parts(
    span: tiers.TierRange, columns: Sequence[str]
) -> Iterator[tuple[tiers.TierRange, list[str]]]:
    """Parts of a time, and the columns as each of them calls them."""
    cut = tiers.parts_by_step if TIME in columns else tiers.parts_merged
    for part in cut(span.start, span.end, span.step_s):
        yield part, [_column(part) if name == TIME else name for name in columns]


def _stepped(values: Iterable[Any], span: tiers.TierRange) -> tuple[Any, ...]:
    """The same values with moments cut to their step."""
    return tuple(
        tiers.step_floor(value, span.step_s) if isinstance(value, datetime) else value
        for value in values
    )


def key_last_used(organization: uuid.UUID) -> dict[uuid.UUID, datetime]:
    """To the minute, when each key was last used; days ago to the step that is still kept."""
    used: dict[uuid.UUID, datetime] = {}
    with bounded_read([organization]):
        old = models.UsageRollup.objects.filter(organization=organization).values_list("key")
        new = models.UsageMinute.objects.filter(organization=organization).values_list("key")
        for key, at in old.annotate(last=Max("at")).order_by():
            used[key] = at
        for key, minute in new.annotate(last=Max("minute")).order_by():
            used[key] = max(minute, used.get(key, minute))
    return used


def _point(points: dict[datetime, Point], at: datetime) -> Point:
    if at not in points:
        points[at] = Point(at)
    return points[at]


def _step_of(second: int, *, step_s: int) -> datetime:
    return datetime.fromtimestamp(second // step_s * step_s, UTC)


def _histograms(query: SeriesQuery, part: tiers.TierRange) -> Iterator[HistogramRow]:
    for organization, project, measures in (
        (EVERYONE, EVERYONE, (*query.everyone, *query.gauges)),
        (query.organization, query.project or EVERYONE, query.own),
    ):
        rows = _rows(
            part,
            {
                "organization": organization,
                "project": project,
                "measure__in": measures,
                "dimension": WHOLE,
                "model": query.model,
            },
        )
        rows = rows.annotate(second=_SECOND[_column(part)])
        yield from rows.values_list("second", "measure", "organization", "data")


def _column(part: tiers.TierRange) -> str:
    """Where rows of a part say their time."""
    return "minute" if part.step_s == tiers.MINUTE_S else "at"


def _rows(
    part: tiers.TierRange, wanted: dict[str, Any], tables: tuple[Any, Any] = HISTOGRAMS
) -> QuerySet[Any]:
    minutes, rollups = tables
    rows: QuerySet[Any]
    if part.step_s == tiers.MINUTE_S:
        rows = minutes.objects.filter(minute__gte=part.start, minute__lt=part.end)
    else:
        rows = rollups.objects.filter(step_s=part.step_s, at__gte=part.start, at__lt=part.end)
    return rows.filter(**wanted)


def _usage(
    part: tiers.TierRange, wanted: dict[str, Any], *columns: str
) -> Iterator[tuple[tuple[Any, ...], UsageSum]]:
    grouped = _rows(part, wanted, USAGE).order_by().values_list(*columns)
    for row in grouped.annotate(*map(Sum, FIGURES)):
        # PostgreSQL sums bigint to numeric.
        yield row[: len(columns)], UsageSum(*map(int, row[len(columns) :]))


READ_MS_MAX = 1_000


def exemplar(query: SeriesQuery, measure: str, value_us: float) -> uuid.UUID | None:
    """A request of the query's organization, time, model and project that took about so long.

    `measure` is total, ttft or a stage. The nearest octave counts first, then the nearest value;
    None where no request is known. Raises TooMuchToRead.
    """
    value = round(value_us)
    rows = models.Exemplar.objects.filter(
        measure=measure,
        at__gte=tiers.step_floor(query.start, tiers.ROLLUP_S),
        at__lt=query.end,
        **query.narrowed_usage,
    )
    near = (Abs(F("octave") - value.bit_length()), Abs(F("value_us") - value), "-at")
    with bounded_read([query.organization], READ_MS_MAX):
        return rows.order_by(*near).values_list("request", flat=True).first()
