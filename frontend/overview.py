"""The Overview's figures: tiles, stage table and charts, made alike for page and live stream.

Pure arithmetic over points that the selectors have read; percentiles come from merged histograms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from controlplane.kernel.gauges import (
    ACCEPTED,
    DRAFTED,
    OLDEST_WAIT_MS,
    SAMPLE_S,
    WAITING,
    WAITING_BY_PRIORITY,
    WAITING_IN_GATEWAY,
    WAITING_ON_NODES,
)
from controlplane.kernel.histogram import Histogram, merge_all
from controlplane.kernel.money import usd_short, usd_text
from controlplane.kernel.spans import STAGES
from controlplane.telemetry.selectors import Point, UsageSum
from frontend import formats
from frontend.cells import Cell, count_cell, percentile_cells
from frontend.plots.figure import Figure
from frontend.plots.overview import Depth, make_figures
from frontend.ranges import TimeRange
from frontend.stages import LABELS, STAGE_NAMES

EVERYONE = (*STAGE_NAMES, "tokens_per_s")
OWN = ("total", "ttft", "inter_token")
MILLI = 1_000
MICRO = 1_000_000
HUNDRED = 100.0
# The drawing shows this many budgets, so that a bar over its budget is seen to pass the mark.
BUDGETS_SHOWN = 1.5


class Waits(NamedTuple):
    """The viewer's own requests that wait in gateways now, and the longest wait so far."""

    waiting: int = 0
    oldest_s: float = 0.0


NOBODY = Waits()


@dataclass(frozen=True)
class Tile:
    """One headline figure, or several side by side; `width` is its class: wide, widest or none."""

    label: str
    cells: list[Cell]
    more: Cell
    link: str = ""
    width: str = ""


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
    points: dict[datetime, Point],
    within: TimeRange,
    now: datetime,
    *,
    spend_nano: int | None,
    percent: int,
    waits: Waits = NOBODY,
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
        tiles=[
            *_tiles(everyone, own, usage, seconds),
            _queue_tile(depth, waits),
            _cache_tile(usage),
            _drafts_tile(everyone),
            Tile("Spend", [_spend(spend_nano)], Cell("spend.source", "charged on the ledger")),
        ],
        stages=[_stage(number, everyone) for number in range(1, len(STAGES) + 1)],
        figures=make_figures(points, within, depth, percent),
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
) -> list[Tile]:
    rate = everyone["tokens_per_s"].percentile(0.5) if "tokens_per_s" in everyone else None
    return [
        *_request_tiles(own, usage, seconds),
        Tile(
            "Output tokens/s",
            [Cell("tokens", formats.rate(usage.output / seconds))],
            Cell("tokens.each", "all answers, averaged over the range; typical speed of one "
                 f"answer {formats.rate(rate and rate / MILLI)}"),
            width="wide",
        ),
    ]  # fmt: skip


def _request_tiles(own: dict[str, Histogram], usage: UsageSum, seconds: float) -> list[Tile]:
    ttft = own.get("ttft")
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
            "Clients left",
            [Cell("gone", formats.percent(usage.gone, usage.requests))],
            Cell("gone.count", f"{usage.gone:,} hung up before the end (499)"),
            "499",
        ),
        Tile(
            "Time to first token",
            percentile_cells("ttft", ttft, unit=True),
            Cell("ttft.n", f"n = {ttft.count if ttft else 0:,}"),
            width="widest",
        ),
    ]


def _queue_tile(depth: dict[datetime, Depth], own: Waits) -> Tile:
    most = max((each.most for each in depth.values()), default=0)
    now = formats.rate(round(depth[max(depth)].mean, 3)) if depth else formats.MISSING
    cells = [Cell("depth", now, label="now"), count_cell("depth.most", most, "most at once")]
    words = "requests waiting, all tenants; none of yours in a gateway now"
    if own.waiting:
        longest = formats.duration(own.oldest_s * MICRO)
        words = f"requests waiting, all tenants; {own.waiting:,} of yours now, up to {longest}"
    what = Cell("depth.what", words)
    return Tile("Queue depth", cells, what, width="wide")


def _cache_tile(usage: UsageSum) -> Tile:
    """What engines delivered, beside what routing captured of all that the fleet had."""
    prompt = usage.uncached + usage.cached
    cells = [
        Cell(key, formats.percent(tokens, prompt), f"{tokens:,} tokens", label=label)
        for key, tokens, label in (
            ("cache", usage.cached, "delivered"),
            ("cache.captured", usage.captured, "captured"),
            ("cache.available", usage.available, "available"),
        )
    ]
    counts = f"{formats.count_short(usage.cached)} of {formats.count_short(prompt)}"
    return Tile(
        "Cache hit rate",
        cells,
        Cell(
            "cache.tokens",
            f"{counts} prompt tokens delivered by engines, of what routing"
            " captured, of what the fleet had",
        ),
        width="widest",
    )


def _drafts_tile(everyone: dict[str, Histogram]) -> Tile:
    drafted, accepted = (
        everyone[name].total if name in everyone else 0 for name in (DRAFTED, ACCEPTED)
    )
    words, exact = "nothing was guessed ahead", ""
    if drafted:
        exact = f"{accepted:,} of {drafted:,}"
        counts = f"{formats.count_short(accepted)} of {formats.count_short(drafted)}"
        words = f"{counts} tokens guessed ahead, all tenants"
    return Tile(
        "Drafts accepted",
        [Cell("drafts", formats.percent(accepted, drafted))],
        Cell("drafts.tokens", words, exact),
    )


def _spend(nano: int | None) -> Cell:
    if nano is None:
        return Cell("spend", formats.MISSING, "too many ledger lines to add up in time")
    return Cell("spend", usd_short(nano), f"${usd_text(nano)}")


def _stage(number: int, everyone: dict[str, Histogram]) -> StageRow:
    name, _, budget_us = STAGES[number - 1]
    found = everyone.get(name)
    slow = found.percentile(0.95) if found else None
    # A percentile of too few values is no ground for a verdict.
    judged = slow is not None and found is not None and not formats.few(95, found.count)
    over = judged and slow is not None and slow > budget_us
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
            words if judged else formats.MISSING,
            tone=tone if judged else "faint",
        ),
        bar_key=f"{name}.bar",
        bar_width=round(min(share, HUNDRED), 2),
        over=over,
    )


def _depths(kept: Sequence[Point], within: TimeRange, now: datetime) -> dict[datetime, Depth]:
    """How many waited in each step: sampled counts, averaged over the time the step has lasted."""
    made = {}
    for point in kept:
        most = point.everyone.get(WAITING)
        if most is None:
            continue
        # The present step has not lasted its full length yet.
        lasted_s = min(within.step_s, max(SAMPLE_S, (now - point.at).total_seconds()))
        in_gateway, on_nodes, *priorities = (
            point.everyone[name].total * SAMPLE_S / lasted_s
            for name in (WAITING_IN_GATEWAY, WAITING_ON_NODES, *WAITING_BY_PRIORITY)
            if name in point.everyone
        )
        oldest = point.everyone.get(OLDEST_WAIT_MS)
        made[point.at] = Depth(
            in_gateway,
            on_nodes,
            most.maximum,
            tuple(priorities),
            None if oldest is None else oldest.maximum,
        )
    return made
