"""A heat map over time from histograms: how many values fell between which two durations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from math import ceil, floor, sqrt
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from controlplane.kernel.histogram import BUCKETS_PER_OCTAVE, Histogram
from controlplane.kernel.measures import STAGE_NAMES
from frontend.shared import formats
from frontend.shared.plots import figure

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
class CellLinks:
    """Where cells lead. `page` ends where parameters go on; `query` makes those of two bounds.

    Bounds are in microseconds. What is counted in a step ended in it, while requests are listed by
    when they began: so a cell leads to an earlier time, by the duration, and by a whole step more
    where only a part of a request is measured.
    """

    page: str
    query: Callable[[float, float], str]
    is_part: bool = False


@dataclass(frozen=True)
class HeatMap:
    """Counts by step and duration. `unit` is what one unit of the axis is in recorded units."""

    name: str
    title: str
    times: Sequence[datetime]
    step_s: int
    found: Mapping[datetime, Histogram] = field(repr=False)
    axis: figure.Axis
    unit: float = formats.US_PER_MS
    links: CellLinks | None = None

    @cached_property
    def counts(self) -> dict[datetime, dict[int, int]]:
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
        return not self.bands

    @cached_property
    def finding(self) -> str:
        if self.empty:
            return "No data in this range."
        sums = dict.fromkeys(self.bands, 0)
        for rows in self.counts.values():
            for row in rows.keys() & sums.keys():
                sums[row] += rows[row]
        fullest = max(sums, key=lambda row: sums[row])
        low, high = (f"{formats.significant(self._edge(row))}" for row in (fullest, fullest + 1))
        share = formats.percent(sums[fullest], sum(sums.values()))
        return f"The fullest band, {low} to {high} {self.axis.title}, has {share} of all values."

    @property
    def head(self) -> list[str]:
        return [figure.TIME_HEAD, f"from, {self.axis.title}", f"to, {self.axis.title}", "count"]

    def rows(self) -> list[list[str]]:
        """One line for each cell that has any values, oldest first."""
        texts = {row: f"{self._edge(row):.6g}" for row in (*self.bands, self.bands.stop)}
        made = []
        for at in sorted(self.counts):
            rows, time = self.counts[at], formats.moment(at)
            made += [
                [time, texts[row], texts[row + 1], str(rows[row])]
                for row in sorted(rows.keys() & texts.keys())
            ]
        return made

    def addresses(self, most: int) -> list[str]:
        """Where the last so many lines of the table lead; none where they lead nowhere."""
        if self.links is None:
            return []
        page, made = self.links.page, list[str]()
        parts = [(row, *self._part(row)) for row in reversed(self.bands)]
        for at in sorted(self.counts, reverse=True):
            if len(made) >= most:
                break
            rows, end = self.counts[at], _url_time(at + timedelta(seconds=self.step_s))
            made += [
                f"{page}from={_url_time(at - timedelta(seconds=early_s))}&to={end}&{query}"
                for row, early_s, query in parts
                if row in rows
            ]
        return made[:most][::-1]

    def as_json(self) -> dict[str, Any]:
        """What the browser hands to Plotly: edges of cells, not their middles.

        `opens` is for a click: the parts that an address is made of.
        """
        heights = [self._edge(row) for row in (*self.bands, self.bands.stop)]
        cells: list[list[int | None]] = [[None] * len(self.times) for _ in self.bands]
        for column, at in enumerate(self.times):
            for row, count in self.counts.get(at, {}).items():
                if row in self.bands:
                    cells[row - self.bands.start][column] = count
        edges = [*self.times, *(at + timedelta(seconds=self.step_s) for at in self.times[-1:])]
        level, upright = figure.time_axis(edges), figure.value_axis(self.axis, heights)
        layout = figure.plain_layout(self.name, level=level, upright=upright)
        layout["hovermode"] = "closest"
        trace = {
            "type": "heatmap",
            "x": [at.strftime("%Y-%m-%dT%H:%M:%S") for at in edges],
            "y": heights,
            "z": cells,
            "colorscale": [list(stop) for stop in SCALE],
            "hoverongaps": False,
            "colorbar": {"title": {"text": "Values per cell", "side": "right"}, "thickness": 10},
            "hovertemplate": "%{x}<br>%{y:.3s} " + self.axis.title + "<br>%{z:,}<extra></extra>",
        }
        made: dict[str, Any] = {"data": [trace], "layout": layout, "config": figure.plot_config()}
        if self.links is not None and not self.empty:
            made["opens"] = {
                "page": self.links.page,
                "times_s": [int(at.timestamp()) for at in self.times],
                "step_s": self.step_s,
                "rows": [self._part(row) for row in self.bands],
            }
        return made

    def _part(self, row: int) -> tuple[int, str]:
        """By how many whole seconds its requests may have begun earlier, and what narrows to it."""
        if self.links is None:
            return 0, ""
        low_us, high_us = self._edge_us(row), self._edge_us(row + 1)
        early_s = ceil(high_us / formats.US_PER_S) + self.step_s * self.links.is_part
        return early_s, self.links.query(low_us, high_us)

    def _edge(self, row: int) -> float:
        return self._edge_us(row) / self.unit

    @staticmethod
    def _edge_us(row: int) -> float:
        return float(2.0 ** (row / ROWS_PER_OCTAVE))


def _url_time(at: datetime) -> str:
    """As `frontend.shared.filters` reads it; nothing in it needs escaping."""
    return at.strftime("%Y-%m-%dT%H:%M:%S")


# Measures that the list of requests can be narrowed by, and its words for the least and the most.
LISTED = {"total": ("min_ms", "max_ms"), "ttft": ("min_ttft_ms", "max_ttft_ms")}


def cell_links(measure: str, model: str) -> CellLinks | None:
    """For a stage to an example, for total and first token to all; None where nothing is listed."""
    kept = {"model": model} if model else {}
    if measure in LISTED:
        query = partial(_between, *LISTED[measure])
        return CellLinks(_page("requests", kept), query, is_part=measure != "total")
    if measure in STAGE_NAMES:
        page = _page("request_exemplar", {"measure": measure, **kept})
        return CellLinks(page, _about, is_part=True)
    return None


def _page(name: str, kept: dict[str, str]) -> str:
    return f"{reverse(name)}?{urlencode(kept)}{'&' if kept else ''}"


def _between(least: str, most: str, low_us: float, high_us: float) -> str:
    """Values are whole microseconds, above the lower bound and up to the upper one."""
    return f"{least}={_ms(floor(low_us) + 1)}&{most}={_ms(floor(high_us))}"


def _about(low_us: float, high_us: float) -> str:
    return f"value={round(sqrt(low_us * high_us))}"


def _ms(value_us: int) -> str:
    whole, rest = divmod(value_us, formats.US_PER_MS)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".")
