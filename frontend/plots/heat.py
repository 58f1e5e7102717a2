"""A heat map over time from histograms: how many values fell between which two durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from controlplane.kernel.histogram import BUCKETS_PER_OCTAVE, Histogram
from frontend import formats
from frontend.plots.axes import Axis, time_axis, value_axis
from frontend.plots.config import plot_config
from frontend.plots.figure import plain_layout

# Four rows to an octave: 19 % apart, as fine as a row of a few pixels can show.
ROWS_PER_OCTAVE = 4
BUCKETS_PER_ROW = BUCKETS_PER_OCTAVE // ROWS_PER_OCTAVE
ROWS_MAX = 128
# Shares of the greatest count and the colours there: few values must be seen beside many.
SCALE = (
    (0.0, "--heat-1"),
    (0.02, "--heat-2"),
    (0.15, "--heat-3"),
    (0.5, "--heat-4"),
    (1.0, "--heat-5"),
)


@dataclass(frozen=True)
class HeatMap:
    """Counts by step and duration. `unit` is what one unit of the axis is in recorded units."""

    name: str
    title: str
    times: Sequence[datetime]
    step_s: int
    found: Mapping[datetime, Histogram] = field(repr=False)
    axis: Axis
    unit: float = formats.US_PER_MS

    @cached_property
    def counts(self) -> dict[datetime, dict[int, int]]:
        """By step, how many values each row of the drawing has."""
        made = {}
        for at, histogram in self.found.items():
            rows: dict[int, int] = {}
            for index, count in histogram.buckets.items():
                # A bucket holds what is above its lower bound, up to its upper one.
                row = (index - 1) // BUCKETS_PER_ROW
                rows[row] = rows.get(row, 0) + count
            made[at] = rows
        return made

    @cached_property
    def bands(self) -> range:
        """Rows from the least to the greatest value, the highest of them if there are too many."""
        used = {row for rows in self.counts.values() for row in rows}
        if not used:
            return range(0)
        return range(max(min(used), max(used) - ROWS_MAX + 1), max(used) + 1)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.bands

    @property
    def finding(self) -> str:
        """Where most values lie."""
        if self.empty:
            return "Nothing was recorded in this range."
        sums = {row: sum(rows.get(row, 0) for rows in self.counts.values()) for row in self.bands}
        fullest = max(sums, key=lambda row: sums[row])
        low, high = (f"{formats.significant(self._edge(row))}" for row in (fullest, fullest + 1))
        share = formats.percent(sums[fullest], sum(sums.values()))
        return f"The fullest band, {low} to {high} {self.axis.title}, has {share} of all values."

    @property
    def head(self) -> list[str]:
        """Column names of the table and the CSV."""
        return ["Time, UTC", f"from, {self.axis.title}", f"to, {self.axis.title}", "count"]

    def rows(self) -> list[list[str]]:
        """One line for each cell that has any values, oldest first."""
        texts = {row: f"{self._edge(row):.6g}" for row in (*self.bands, self.bands.stop)}
        made = []
        for at in sorted(self.counts):
            rows, time = self.counts[at], at.strftime("%Y-%m-%d %H:%M:%S")
            made += [
                [time, texts[row], texts[row + 1], str(rows[row])]
                for row in self.bands
                if row in rows
            ]
        return made

    def as_json(self) -> dict[str, Any]:
        """What the browser hands to Plotly: edges of cells, not their middles."""
        heights = [self._edge(row) for row in (*self.bands, self.bands.stop)]
        edges = [*self.times, *(at + timedelta(seconds=self.step_s) for at in self.times[-1:])]
        level, upright = time_axis(edges), value_axis(self.axis, heights)
        layout = plain_layout(self.name, level=level, upright=upright)
        layout["hovermode"] = "closest"
        trace = {
            "type": "heatmap",
            "x": [at.strftime("%Y-%m-%dT%H:%M:%S") for at in edges],
            "y": heights,
            "z": [[self.counts.get(at, {}).get(row) for at in self.times] for row in self.bands],
            "colorscale": [list(stop) for stop in SCALE],
            "hoverongaps": False,
            "colorbar": {"title": {"text": "count", "side": "right"}, "thickness": 10},
            "hovertemplate": "%{x}<br>%{y:.3s} " + self.axis.title + "<br>%{z:,}<extra></extra>",
        }
        return {"data": [trace], "layout": layout, "config": plot_config()}

    def _edge(self, row: int) -> float:
        """The lower bound of a row."""
        return float(2.0 ** (row / ROWS_PER_OCTAVE)) / self.unit
