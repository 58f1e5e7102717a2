"""The Overview's figures: tiles, stage table and charts, made alike for page and live stream.

Pure arithmetic over points that the selectors have read; percentiles come from merged histograms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from controlplane.kernel.histogram import Histogram, merge_all
from controlplane.kernel.money import usd_short, usd_text
from controlplane.kernel.spans import STAGES
from controlplane.telemetry.selectors import Point, UsageSum, step_floor
from frontend import formats
from frontend.cells import PERCENTILES, Cell, count_cell, percentile_cells
from frontend.plots.figure import Axis, Figure, Line
from frontend.ranges import TimeRange
from frontend.stages import LABELS, STAGE_NAMES

EVERYONE = (*STAGE_NAMES, "queue", "tokens_per_s")
OWN = ("total", "ttft", "inter_token")
MILLI = 1_000
HUNDRED = 100.0
DEPTH_TOLD = 0.001
# The drawing shows this many budgets, so that a bar over its budget is seen to pass the mark.
BUDGETS_SHOWN = 1.5


@dataclass(frozen=True)
class Tile:
    """One headline figure, or three percentiles side by side."""

    label: str
    cells: list[Cell]
    more: Cell
    link: str = ""


@dataclass(frozen=True)
class StageRow:
    """One stage: its percentiles beside its budget."""

    number: int
    name: str
    label: str
    budget_ms: str
    cells: list[Cell]
    count: Cell
    verdict: Cell
    bar_key: str
    bar_width: float
    over: bool


@dataclass(frozen=True)
class Overview:
    """Everything the page shows."""

    empty: bool
    tiles: list[Tile]
    stages: list[StageRow]
    figures: list[Figure]
    as_of: datetime

    def live(self) -> dict[str, Any]:
        """The same as plain JSON: cells by key, bars by key, charts by name."""
        return {
            "cells": {cell.key: cell.as_json() for cell in self._cells()},
            "bars": {row.bar_key: [row.bar_width, row.over] for row in self.stages},
            "figures": {figure.name: figure.as_json() for figure in self.figures},
            "as_of": self.as_of.strftime("%H:%M:%S"),
            "empty": self.empty,
        }

    def _cells(self) -> Iterable[Cell]:
        for tile in self.tiles:
            yield from tile.cells
            yield tile.more
        for row in self.stages:
            yield from row.cells
            yield row.count
            yield row.verdict


def make_overview(
    points: dict[datetime, Point], within: TimeRange, now: datetime, *, spend_nano: int | None
) -> Overview:
    """Figures of a range from its points."""
    kept = [points[at] for at in sorted(points)]
    everyone = _merged(point.everyone for point in kept)
    own = _merged(point.own for point in kept)
    usage = UsageSum()
    for point in kept:
        usage.add(point.usage)
    seconds = max(1.0, (min(within.end, now) - within.start).total_seconds())
    depth = _depths(kept, within, now)
    return Overview(
        empty=not usage.requests,
        tiles=_tiles(everyone, own, usage, seconds, depth, spend_nano),
        stages=[_stage(number, everyone) for number in range(1, len(STAGES) + 1)],
        figures=_figures(points, within, depth),
        as_of=now,
    )


def _merged(parts: Iterable[dict[str, Histogram]]) -> dict[str, Histogram]:
    lists: dict[str, list[Histogram]] = {}
    for part in parts:
        for measure, histogram in part.items():
            lists.setdefault(measure, []).append(histogram)
    return {measure: merge_all(found) for measure, found in lists.items()}


def _tiles(
    everyone: dict[str, Histogram],
    own: dict[str, Histogram],
    usage: UsageSum,
    seconds: float,
    depth: dict[datetime, float],
    spend_nano: int | None,
) -> list[Tile]:
    prompt = usage.uncached + usage.cached
    ttft = own.get("ttft")
    rate = everyone["tokens_per_s"].percentile(0.5) if "tokens_per_s" in everyone else None
    peak = max(depth.values(), default=0.0)
    last = depth[max(depth)] if depth else None
    return [
        Tile(
            "Requests",
            [count_cell("requests", usage.requests)],
            Cell("requests.rate", formats.rate_words(usage.requests / seconds)),
            "requests",
        ),
        Tile(
            "Errors",
            [Cell("errors", formats.percent(usage.errors, usage.requests))],
            Cell("errors.count", f"{usage.errors:,} answered 4xx or 5xx"),
            "failed",
        ),
        Tile(
            "Time to first token",
            percentile_cells("ttft", ttft, unit=True),
            Cell("ttft.n", f"n = {ttft.count if ttft else 0:,}"),
        ),
        Tile(
            "Output tokens/s",
            [Cell("tokens", formats.rate(usage.output / seconds))],
            Cell("tokens.each", f"median of one answer {formats.rate(rate and rate / MILLI)}"),
        ),
        Tile(
            "Queue depth",
            [Cell("depth", formats.rate(round(last, 3)) if last is not None else formats.MISSING)],
            Cell("depth.peak", f"waiting on average; peak {round(peak, 3):g}"),
        ),
        Tile(
            "Cache hit rate",
            [Cell("cache", formats.percent(usage.cached, prompt))],
            Cell("cache.tokens", f"{formats.count_short(usage.cached)} of "
                 f"{formats.count_short(prompt)} prompt tokens"),
        ),
        Tile(
            "Spend",
            [_spend(spend_nano)],
            Cell("spend.source", "charged on the ledger"),
        ),
    ]  # fmt: skip


def _spend(nano: int | None) -> Cell:
    if nano is None:
        return Cell("spend", formats.MISSING, "too many ledger lines to add up in time")
    return Cell("spend", usd_short(nano), f"${usd_text(nano)}")


def _stage(number: int, everyone: dict[str, Histogram]) -> StageRow:
    name, _, budget_us = STAGES[number - 1]
    found = everyone.get(name)
    slow = found.percentile(0.95) if found else None
    over = slow is not None and slow > budget_us
    share = 0.0 if slow is None else HUNDRED * slow / (budget_us * BUDGETS_SHOWN)
    tone, words = ("status bad", "over") if over else ("status ok", "within")
    return StageRow(
        number=number,
        name=name,
        label=LABELS[name],
        budget_ms=f"{budget_us / formats.US_PER_MS:g}",
        cells=percentile_cells(name, found, unit=False),
        count=count_cell(f"{name}.n", found.count if found else 0),
        verdict=Cell(
            f"{name}.verdict",
            formats.MISSING if slow is None else words,
            tone="faint" if slow is None else tone,
        ),
        bar_key=f"{name}.bar",
        bar_width=round(min(share, HUNDRED), 2),
        over=over,
    )


def _steps(within: TimeRange) -> list[datetime]:
    at, made = step_floor(within.start, within.step_s), []
    while at < within.end:
        made.append(at)
        at += timedelta(seconds=within.step_s)
    return made


def _depths(kept: Sequence[Point], within: TimeRange, now: datetime) -> dict[datetime, float]:
    """Mean number waiting, by Little's law: all waiting time of a step over the step's length."""
    made = {}
    for point in kept:
        waited_us = sum(
            point.everyone[name].total for name in ("queue", "s4_route") if name in point.everyone
        )
        # The present step has not lasted its full length yet.
        lasted_s = min(within.step_s, max(1.0, (now - point.at).total_seconds()))
        made[point.at] = waited_us / formats.US_PER_S / lasted_s
    return made


def _figures(
    points: dict[datetime, Point], within: TimeRange, depth: dict[datetime, float]
) -> list[Figure]:
    times = _steps(within)
    return [
        _stages_figure(points, times),
        _ttft_figure(points, times),
        _depth_figure(depth, times),
        _cache_figure(points, times),
    ]


def _milliseconds(found: Histogram | None, share: float) -> float | None:
    value = found.percentile(share) if found else None
    return None if value is None else value / formats.US_PER_MS


def _stages_figure(points: dict[datetime, Point], times: list[datetime]) -> Figure:
    lines = []
    for number, name in enumerate(STAGE_NAMES, start=1):
        values = [
            _milliseconds(points[at].everyone.get(name), 0.95) if at in points else None
            for at in times
        ]
        lines.append(Line(f"{number} {LABELS[name]}", values, f"--stage-{number}"))
    tops = [(max((v for v in line.values if v is not None), default=0.0), line) for line in lines]
    top, slowest = max(tops, key=lambda pair: pair[0])
    finding = (
        f"{slowest.name[2:]} was slowest: up to {formats.duration(top * formats.US_PER_MS)}. "
        "All tenants of this installation; percentiles of stages do not add up."
        if top
        else "Nothing was recorded in this range."
    )
    axis = Axis("ms", logarithmic=True)
    return Figure("stages", "Stages over time, p95", finding, times, lines, axis)


def _ttft_figure(points: dict[datetime, Point], times: list[datetime]) -> Figure:
    lines = []
    for percent, dash in zip(PERCENTILES, ("solid", "dash", "dot"), strict=True):
        values = [
            _milliseconds(points[at].own.get("ttft"), percent / 100) if at in points else None
            for at in times
        ]
        lines.append(Line(f"p{percent}", values, "--stage-5", dash))
    worst = max((v for v in lines[-1].values if v is not None), default=None)
    finding = (
        "No answer reached its first token in this range."
        if worst is None
        else f"The worst p99 was {formats.duration(worst * formats.US_PER_MS)}."
    )
    return Figure("ttft", "Time to first token", finding, times, lines, Axis("ms"))


def _depth_figure(depth: dict[datetime, float], times: list[datetime]) -> Figure:
    values = [depth.get(at) for at in times]
    peak = max((value for value in values if value is not None), default=0.0)
    most = f"{round(peak, 3):,g}" if peak >= DEPTH_TOLD else "fewer than 0.001"
    finding = (
        f"At the peak {most} requests waited at once, averaged over a step; in the gateway and on "
        "nodes, all tenants."
    )
    line = Line("requests waiting", values, "--stage-4")
    axis = Axis("requests", most=max(1.0, peak * 1.1))
    return Figure("queue", "Queue depth", finding, times, [line], axis)


def _cache_figure(points: dict[datetime, Point], times: list[datetime]) -> Figure:
    values: list[float | None] = []
    for at in times:
        usage = points[at].usage if at in points else UsageSum()
        prompt = usage.uncached + usage.cached
        values.append(HUNDRED * usage.cached / prompt if prompt else None)
    known = [value for value in values if value is not None]
    finding = (
        f"Between {min(known):.0f} and {max(known):.0f} % of prompt tokens came from the cache."
        if known
        else "No prompt was read in this range."
    )
    line = Line("hit rate", values, "--stage-2")
    return Figure("cache", "Cache hit rate", finding, times, [line], Axis("%", most=HUNDRED))
