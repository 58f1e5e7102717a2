"""The Overview's figures: tiles, stage table and charts, made alike for page and live stream.

Pure arithmetic over points that the selectors have read; percentiles come from merged histograms.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.telemetry.selectors import Point
from frontend.overview.plots import make_figures
from frontend.overview.stage_rows import Owner, StageRow, stage_rows
from frontend.shared.asked import Asked
from frontend.shared.cells import Cell
from frontend.shared.panels import TablePanel
from frontend.shared.plots.figure import Figure, Panel
from frontend.shared.plots.queue import depths
from frontend.shared.stages import OVERHEAD, STAGE_NAMES, UNATTRIBUTED
from frontend.shared.tiles import (
    Sums,
    Tile,
    Waits,
    compared,
    queue_tile,
    spend_tile,
    sum_tiles,
    sums_of,
)

EVERYONE = (*STAGE_NAMES, UNATTRIBUTED, OVERHEAD)

NO_POINTS: Mapping[datetime, Point] = {}


@dataclass(frozen=True)
class Beside:
    """What the page tells beside series: money charged, who waits now, and owners of stages."""

    spend_nano: int | None
    waits: Waits
    owners: Mapping[str, Owner]


@dataclass(frozen=True)
class Overview:
    empty: bool
    tiles: list[Tile]
    stages: list[StageRow]
    figures: list[Figure]
    as_of: datetime

    @property
    def panels(self) -> list[Panel]:
        return [_tiles_panel(self.tiles), _stages_panel(self.stages), *self.figures]

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


def _tiles_panel(tiles: list[Tile]) -> TablePanel:
    rows = [
        [tile.label, cell.label, cell.text, cell.title]
        for tile in tiles
        for cell in (*tile.cells, tile.more)
    ]
    return TablePanel("tiles", "Key figures", ["Figure", "Part", "Value", "Exactly"], rows)


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
