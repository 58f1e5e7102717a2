"""The Overview's figures: tiles, stage table and charts, made alike for page and live stream.

Pure arithmetic over points that the selectors have read; percentiles come from merged histograms.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.spans import STAGES
from controlplane.slos.models import StageOwner
from controlplane.slos.runbooks import runbook_path
from controlplane.telemetry.selectors import Point
from frontend.shared import formats
from frontend.shared.asked import Asked
from frontend.shared.filters import TimeRange
from frontend.shared.panels import TablePanel
from frontend.shared.plots.figure import (
    BEFORE,
    Axis,
    Figure,
    Line,
    Panel,
    before_line,
    percentile_lines,
    pick,
    worst,
)
from frontend.shared.plots.queue import Depth, depths, queue_figures
from frontend.shared.plots.stages import cache_figure, overhead_figure, stages_figure
from frontend.shared.stages import LABELS, OVERHEAD, STAGE_NAMES, UNATTRIBUTED
from frontend.shared.tiles import (
    Sums,
    Tile,
    Waits,
    compared,
    queue_tile,
    spend_tile,
    sum_tiles,
    sums_of,
    tiles_panel,
)

EVERYONE = (*STAGE_NAMES, UNATTRIBUTED, OVERHEAD)

NO_POINTS: Mapping[datetime, Point] = {}
HUNDRED = 100.0
# The drawing shows this many budgets, so that a bar over its budget is seen to pass the mark.
BUDGETS_SHOWN = 1.5

Merged = Mapping[str, Histogram]
Points = Mapping[datetime, Point]
Owners = Mapping[str, StageOwner]


@dataclass(frozen=True)
class StageRow:
    """One stage: its percentiles beside its budget; number 0 is time that lies in none."""

    number: int
    name: str
    label: str
    budget_ms: str
    owner: StageOwner
    cells: list[formats.Cell]
    before: formats.Cell
    count: formats.Cell
    verdict: formats.Cell
    bar_key: str
    bar_width: float
    over: bool

    @property
    def runbook(self) -> str:
        return runbook_path(self.owner.runbook)


@dataclass(frozen=True)
class Beside:
    """What the page tells beside series: money charged, who waits now, and owners of stages."""

    spend_nano: int | None
    waits: Waits
    owners: Owners


@dataclass(frozen=True)
class Overview:
    empty: bool
    tiles: list[Tile]
    stages: list[StageRow]
    figures: list[Figure]
    as_of: datetime

    @property
    def panels(self) -> list[Panel]:
        return [tiles_panel(self.tiles), _stages_panel(self.stages), *self.figures]

    def live(self) -> dict[str, Any]:
        """The same as plain JSON: cells by key, bars by key, charts by name."""
        return {
            "cells": {cell.key: cell.as_json() for cell in self._cells()},
            "bars": {row.bar_key: [row.bar_width, row.over] for row in self.stages},
            "figures": {one.name: one.as_json() for one in self.figures},
            "as_of": self.as_of.strftime("%H:%M:%S"),
            "empty": self.empty,
        }

    def _cells(self) -> Iterable[formats.Cell]:
        for tile in self.tiles:
            yield from tile.shown
        for row in self.stages:
            yield from row.cells
            yield from (row.before, row.count, row.verdict)


def make_overview(
    points: dict[datetime, Point],
    asked: Asked,
    now: datetime,
    *,
    beside: Beside,
    before: Mapping[datetime, Point] | None = None,
) -> Overview:
    """Figures of a range from its points.

    `before` are those of the period to compare with, by the times of this one; None for none.
    """
    within = asked.within
    kept = [points[at] for at in sorted(points)]
    sums = sums_of(kept, (min(within.end, now) - within.start).total_seconds())
    earlier = sums_of((before or NO_POINTS).values(), within.shift.total_seconds())
    depth = depths(kept, within, now)
    return Overview(
        empty=not sums.usage.requests,
        tiles=_placed(
            [
                *_tiles(sums, earlier, before is not None),
                queue_tile(depth, beside.waits),
                spend_tile(beside.spend_nano),
            ]
        ),
        stages=stage_rows(sums.everyone, earlier.everyone, beside.owners),
        figures=make_figures(points, before or NO_POINTS, within, depth, asked.percent),
        as_of=now,
    )


def _tiles(sums: Sums, earlier: Sums, compare: bool) -> list[Tile]:
    tiles = sum_tiles(sums)
    return compared(tiles, sum_tiles(earlier)) if compare else tiles


def _placed(tiles: list[Tile]) -> list[Tile]:
    """Narrow ones to the left of wide ones, so that each row of the grid is full."""
    order = (
        "Requests", "Errors", "Cancelled by client", "Total time",
        "Spend", "Tokens/s", "Time to first token",
        "Queue depth", "Speculative tokens accepted", "Time between tokens",
        "Cache hit rate", "Overhead",
    )  # fmt: skip
    by_label = {tile.label: tile for tile in tiles}
    return [by_label[label] for label in order]


def _stages_panel(stages: list[StageRow]) -> TablePanel:
    head = ["Stage", "p50, ms", "p95, ms", "p99, ms", "n", "Budget, ms", "Verdict"]
    rows = [
        [
            row.name,
            *(cell.text for cell in row.cells),
            row.count.title,
            row.budget_ms,
            row.verdict.text,
        ]
        for row in stages
    ]
    return TablePanel("stage-table", "The seven stages", head, rows)


def stage_rows(everyone: Merged, before: Merged, owners: Owners) -> list[StageRow]:
    names = [name for name, _, _ in STAGES]
    rows = [
        _row(number, name, owners[name], everyone, before) for number, name in enumerate(names, 1)
    ]
    return [*rows, _row(0, UNATTRIBUTED, StageOwner(budget_us=0), everyone, before)]


def _row(number: int, name: str, owner: StageOwner, everyone: Merged, before: Merged) -> StageRow:
    found, budget_us = everyone.get(name), owner.budget_us
    slow = found.percentile(0.95) if found and budget_us else None
    # A percentile of too few values is no ground for a verdict.
    enough = found is not None and not formats.few(95, found.count)
    judged = owner.judges and slow is not None and enough
    over = judged and slow is not None and slow > budget_us
    share = 0.0 if slow is None else HUNDRED * slow / (budget_us * BUDGETS_SHOWN)
    tone, words = ("status bad", "over budget") if over else ("status ok", "within budget")
    if not judged:
        tone, words = "faint", formats.MISSING
    return StageRow(
        number=number,
        name=name,
        label=LABELS.get(name, "Other"),
        budget_ms=f"{budget_us / formats.US_PER_MS:g}" if budget_us else formats.MISSING,
        owner=owner,
        cells=formats.percentile_cells(name, found, unit=False),
        before=formats.before_cell(name, before),
        count=formats.count_cell(f"{name}.n", found.count if found else 0),
        verdict=formats.Cell(f"{name}.verdict", words, tone=tone),
        bar_key=f"{name}.bar",
        bar_width=round(min(share, HUNDRED), 2),
        over=over,
    )


def make_figures(
    points: dict[datetime, Point],
    before: Points,
    within: TimeRange,
    depth: dict[datetime, Depth],
    percent: int,
) -> list[Figure]:
    """All of them, in their order on the page; `percent` chooses the stages' percentile."""
    times = within.steps
    return [
        _traffic_figure(points, before, within),
        _own_figure("total", "Total time", (points, before), times, percent),
        stages_figure(points, times, percent),
        _own_figure("ttft", "Time to first token", (points, before), times, percent),
        overhead_figure(
            {at: point.everyone for at, point in points.items()},
            {at: point.everyone for at, point in before.items()},
            times,
            percent,
        ),
        _throughput_figure(points, within),
        *queue_figures(depth, times),
        cache_figure(points, before, times),
    ]


def _lasted_s(within: TimeRange) -> list[float]:
    """Seconds of each step; the present one has not lasted its full length yet."""
    return [min(within.step_s, max(1.0, (within.end - at).total_seconds())) for at in within.steps]


def _traffic_figure(points: Points, before: Points, within: TimeRange) -> Figure:
    times, lasted_s = within.steps, _lasted_s(within)
    lines = [
        Line("requests", _rates(points, times, "requests", lasted_s), "--stage-5"),
        Line("failed", _rates(points, times, "errors", lasted_s), "--bad"),
    ]
    if before:
        rates = _rates(before, times, "requests", [within.step_s] * len(times))
        lines.append(Line("requests of the previous period", rates, BEFORE, "longdash"))
    failed = sum(point.usage.errors for point in points.values())
    sent = sum(point.usage.requests for point in points.values())
    finding = (
        f"{failed:,} of {sent:,} requests failed with 4xx or 5xx."
        if sent
        else "No requests in this range."
    )
    return Figure("traffic", "Requests per second", finding, times, lines, Axis("requests/s"))


def _throughput_figure(points: Points, within: TimeRange) -> Figure:
    times, lasted_s = within.steps, _lasted_s(within)
    lines = [
        Line("prompt, computed", _rates(points, times, "uncached", lasted_s), "--stage-6"),
        Line("prompt, from the cache", _rates(points, times, "cached", lasted_s), "--stage-2"),
        Line("answers", _rates(points, times, "output", lasted_s), "--stage-5"),
    ]
    computed = sum(point.usage.uncached for point in points.values())
    written = sum(point.usage.output for point in points.values())
    finding = (
        f"{formats.rate(computed / written)} prompt tokens were computed per output token: a high "
        "ratio means prefill load, a low one decode load."
        if written
        else "No responses in this range."
    )
    return Figure("throughput", "Tokens per second", finding, times, lines, Axis("tokens/s"))


def _rates(
    points: Points, times: Sequence[datetime], named: str, lasted_s: Sequence[float]
) -> list[float | None]:
    """A gap where no gateway recorded anything at all."""
    return [
        getattr(points[at].usage, named) / seconds if at in points else None
        for at, seconds in zip(times, lasted_s, strict=True)
    ]


def _own_figure(
    measure: str, title: str, pair: tuple[Points, Points], times: Sequence[datetime], percent: int
) -> Figure:
    """Percentiles of the organization's own requests, and one of the period before."""
    found, before = (
        pick({at: point.own for at, point in points.items()}, measure) for points in pair
    )
    lines = percentile_lines(found, times)
    nothing = "No data in this range."
    finding = worst(lines[-1], "The worst p99 was {}.".format, nothing)
    axis = Axis("ms", logarithmic=True)
    lines += before_line(before, times, percent)
    return Figure(measure, title, finding, times, lines, axis)
