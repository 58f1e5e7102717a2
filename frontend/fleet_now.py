"""What the Fleet page shows over time: charts, and what happened to requests by pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.kernel.gauges import GAUGES, NODES
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import (
    CANCELLED,
    EVENTS,
    FINISH_EVENTS,
    FINISH_OTHER,
    REQUEST_EVENTS,
    RETRIED,
    SHED,
)
from controlplane.telemetry.selectors import EVERYONE, SeriesQuery, series_by, series_read
from frontend.panels import TablePanel
from frontend.plots.figure import Figure, Panel
from frontend.plots.fleet import fleet_figures
from frontend.plots.queue import depths, queue_figures
from frontend.ranges import TimeRange

POOL_HEAD = ["Pool", "Answered", "Cut at their bound", "Refused for lack of room"]
POOL_HEAD += ["Tried again", "Clients left"]
UNKNOWN = "none"


@dataclass(frozen=True)
class FleetTimes:
    """Charts of a range, and its table by pool."""

    figures: list[Figure]
    pools: TablePanel

    @property
    def panels(self) -> list[Panel]:
        """Whatever goes out as CSV."""
        return [*self.figures, self.pools]


def read_fleet_times(within: TimeRange, model: str, now: datetime) -> FleetTimes:
    """Of all tenants, of one model or of all; raises TooMuchToRead."""
    query = SeriesQuery(
        organization=EVERYONE,
        start=within.start,
        end=within.end,
        step_s=within.step_s,
        everyone=EVENTS,
        gauges=(*GAUGES, *NODES),
        model=model,
    )
    points = series_read(query)
    steps = {at: point.everyone for at, point in points.items()}
    times = within.steps
    waits = queue_figures(depths(points.values(), within, now), times)[:1]
    by_pool = SeriesQuery(
        organization=EVERYONE,
        start=within.start,
        end=within.end,
        step_s=within.step_s,
        everyone=REQUEST_EVENTS,
        model=model,
    )
    rows = [_pool_row(pool, found) for pool, found in sorted(series_by(by_pool, "pool").items())]
    table = TablePanel("pools", "What became of requests, by pool", POOL_HEAD, rows)
    return FleetTimes([*waits, *fleet_figures(steps, times)], table)


def _pool_row(pool: str, found: Mapping[str, Histogram]) -> list[str]:
    counts = {measure: histogram.count for measure, histogram in found.items()}
    answered = sum(counts.get(name, 0) for name in (*FINISH_EVENTS.values(), FINISH_OTHER))
    shown = (answered, *(counts.get(n, 0) for n in (FINISH_EVENTS["length"], SHED, RETRIED)))
    return [pool or UNKNOWN, *(str(each) for each in (*shown, counts.get(CANCELLED, 0)))]
