"""What the Fleet page shows over time: charts, and what became of requests by pool and by rule."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from controlplane.kernel.measures import (
    CANCELLED,
    EVENTS,
    FINISH_EVENTS,
    FINISH_OTHER,
    GAUGES,
    NODES,
    REQUEST_EVENTS,
    RETRIED,
    SHED,
)
from controlplane.telemetry.selectors import EVERYONE, SeriesQuery, series_by, series_read
from frontend.fleet.plots import fleet_figures
from frontend.shared.filters import TimeRange
from frontend.shared.panels import TablePanel
from frontend.shared.plots.figure import Figure, Panel
from frontend.shared.plots.queue import depths, queue_figures

ENDS_HEAD = ["Answered", "Stopped at max_tokens", "Refused for lack of capacity"]
ENDS_HEAD += ["Retried", "Cancelled by client"]
UNKNOWN = "none"
# Each version of a rule has a line of its own.
RULES_MAX = 50

Counts = Mapping[str, int]


@dataclass(frozen=True)
class FleetTimes:
    """Charts of a range, and its tables."""

    figures: list[Figure]
    tables: list[TablePanel]

    @property
    def panels(self) -> list[Panel]:
        return [*self.figures, *self.tables]


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
    ends = replace(query, everyone=REQUEST_EVENTS, gauges=())
    return FleetTimes([*waits, *fleet_figures(steps, times)], [_by_pool(ends), _by_rule(ends)])


def _by_pool(query: SeriesQuery) -> TablePanel:
    rows = [_row(pool, counts) for pool, counts in sorted(_counts(query, "pool").items())]
    return TablePanel("pools", "Request outcomes, by pool", ["Pool", *ENDS_HEAD], rows)


def _by_rule(query: SeriesQuery) -> TablePanel:
    found = _counts(query, "route")

    def order(rule: str) -> tuple[int, str]:
        return -(found[rule].get(SHED, 0) + found[rule].get(RETRIED, 0)), rule

    rows = [_row(rule, found[rule]) for rule in sorted(found, key=order)[:RULES_MAX]]
    title = "Request outcomes, by routing rule"
    return TablePanel("rules", title, ["Rule and version", *ENDS_HEAD], rows)


def _counts(query: SeriesQuery, dimension: str) -> dict[str, Counts]:
    return {
        value: {measure: histogram.count for measure, histogram in group.items()}
        for value, group in series_by(query, dimension).items()
    }


def _row(name: str, counts: Counts) -> list[str]:
    answered = sum(counts.get(event, 0) for event in (*FINISH_EVENTS.values(), FINISH_OTHER))
    shown = (counts.get(event, 0) for event in (FINISH_EVENTS["length"], SHED, RETRIED, CANCELLED))
    return [name or UNKNOWN, str(answered), *(str(count) for count in shown)]
