"""Charts with caption, table and CSV: lines over time, and axes as Plotly takes them; their colours
are names of CSS tokens. What is on a logarithmic axis is chosen here: Plotly puts no label at all
on one that holds no power of ten. Lines from histograms by step are percentiles, and those of the
period before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from math import floor, log10
from typing import Any, Protocol, runtime_checkable

from controlplane.kernel.histogram import Histogram
from frontend.shared import formats

# Labels within a decade: the fewer decades, the more.
COARSE, MIDDLE, FINE = (1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
COARSE_FROM, MIDDLE_FROM = 2.5, 0.4
PADDING = 0.03
CONFIG: dict[str, object] = {
    # Plotly's own toolbar can upload a chart; the toolbar also costs ten tab stops a chart.
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "displayModeBar": False,
    "responsive": True,
    "scrollZoom": False,
}
Histograms = Mapping[datetime, Histogram]
DASHES = ("solid", "dash", "dot")
BEFORE = "--muted"


@dataclass(frozen=True)
class Axis:
    """The value axis: its title carries the unit."""

    title: str
    logarithmic: bool = False
    from_zero: bool = True
    most: float | None = None


def value_axis(axis: Axis, values: Iterable[float | None]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "title": {"text": axis.title, "standoff": 6},
        "type": "log" if axis.logarithmic else "linear",
        "gridcolor": "--line",
        "zerolinecolor": "--line",
        "automargin": True,
        "exponentformat": "none",
    }
    if axis.logarithmic:
        made |= _logarithmic(values)
    elif axis.most is not None:
        made["range"] = [0, axis.most]
    elif axis.from_zero:
        made["rangemode"] = "tozero"
    return made


def time_axis(times: Sequence[datetime]) -> dict[str, Any]:
    return {
        "type": "date",
        "gridcolor": "--line",
        # Two lines of labels, where the day changes, would be cut.
        "automargin": True,
        "range": [times[0].isoformat(), times[-1].isoformat()] if times else None,
    }


def _logarithmic(values: Iterable[float | None]) -> dict[str, Any]:
    """Range and labels around the values; zero has no place on such an axis."""
    known = [value for value in values if value is not None and value > 0]
    if not known:
        return {"dtick": 1}
    low, high = min(known), max(known)
    decades = log10(high / low)
    steps = COARSE if decades >= COARSE_FROM else MIDDLE if decades >= MIDDLE_FROM else FINE
    powers = range(floor(log10(low)) - 1, floor(log10(high)) + 2)
    ticks = [step * 10.0**power for power in powers for step in steps]
    first = max(tick for tick in ticks if tick <= low)
    last = min((tick for tick in ticks if tick >= high), default=ticks[-1])
    shown = [tick for tick in ticks if first <= tick <= last]
    return {
        "range": [log10(first) - PADDING, log10(last) + PADDING],
        "tickvals": shown,
        "ticktext": [f"{tick:,.10g}" for tick in shown],
    }


def plain(text: str) -> str:
    """A text that others chose, as Plotly shows it: it reads tags and entities in all of them."""
    return escape(text, quote=False)


def plot_config() -> dict[str, object]:
    """A copy, so that no chart can change another's."""
    return dict(CONFIG)


# The head of a first column that holds moments, which pages show without their zone.
TIME_HEAD = "Time, UTC"
MARGIN = {"l": 56, "r": 12, "t": 8, "b": 40}


class Panel(Protocol):
    """Whatever has a name and rows: what a CSV can be made of."""

    @property
    def name(self) -> str:
        """Its place in the page and its CSV's file name."""

    @property
    def title(self) -> str:
        """What stands above it."""

    @property
    def head(self) -> list[str]:
        """Column names."""

    def rows(self) -> list[list[str]]:
        """The figures on screen as text."""


@runtime_checkable
class Linked(Protocol):
    """A panel whose rows lead somewhere."""

    def addresses(self, most: int) -> list[str]:
        """One for each of the last so many rows, in their order; none where they lead nowhere."""


class Plot(Panel, Protocol):
    """A panel that is drawn."""

    @property
    def finding(self) -> str:
        """What it shows, in a sentence."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""

    def as_json(self) -> dict[str, Any]:
        """What the browser hands to Plotly."""


@dataclass(frozen=True)
class Line:
    """One trace; None leaves a gap, since missing is not zero."""

    name: str
    values: Sequence[float | None]
    color: str
    dash: str = "solid"


def plain_layout(name: str, *, level: dict[str, Any], upright: dict[str, Any]) -> dict[str, Any]:
    return {
        "margin": MARGIN,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "--muted", "family": "--font", "size": 12},
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": "--raised", "bordercolor": "--line"},
        "showlegend": False,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        "xaxis": level,
        "yaxis": upright,
        "uirevision": name,
    }


@dataclass(frozen=True)
class Figure:
    """One chart over time; `stacked` fills each line from the one below it."""

    name: str
    title: str
    finding: str
    times: Sequence[datetime]
    lines: Sequence[Line]
    axis: Axis
    stacked: bool = False

    @property
    def empty(self) -> bool:
        return all(value is None for line in self.lines for value in line.values)

    @property
    def head(self) -> list[str]:
        return [TIME_HEAD, *(f"{line.name}, {self.axis.title}" for line in self.lines)]

    def rows(self) -> list[list[str]]:
        """The same figures as text, oldest first; a gap is an empty cell."""
        made = []
        for place, moment in enumerate(self.times):
            values = [line.values[place] for line in self.lines]
            if any(value is not None for value in values):
                cells = ["" if value is None else f"{value:.6g}" for value in values]
                made.append([formats.moment(moment), *cells])
        return made

    def as_json(self) -> dict[str, Any]:
        level = time_axis(self.times)
        upright = value_axis(self.axis, (value for line in self.lines for value in line.values))
        layout = plain_layout(self.name, level=level, upright=upright)
        layout["showlegend"] = len(self.lines) > 1
        return {"data": self._traces(), "layout": layout, "config": plot_config()}

    def _traces(self) -> list[dict[str, Any]]:
        times = [moment.strftime("%Y-%m-%dT%H:%M:%S") for moment in self.times]
        return [self._trace(line, times) for line in self.lines]

    def _trace(self, line: Line, times: list[str]) -> dict[str, Any]:
        trace: dict[str, Any] = {
            "type": "scatter",
            # A lone minute between gaps has no line: its marker shows it.
            "mode": "lines+markers",
            "marker": {"size": 4},
            # The newest stands on the edge, and would be cut in half.
            "cliponaxis": False,
            "name": plain(line.name),
            "x": times,
            "y": list(line.values),
            "line": {"color": line.color, "width": 2, "dash": line.dash},
            "hovertemplate": "%{y:.3s}",
        }
        if self.stacked:
            trace |= {"mode": "lines", "stackgroup": "one", "fillcolor": line.color}
        return trace


def percentile_lines(found: Histograms, times: Sequence[datetime]) -> list[Line]:
    """p50, p95 and p99 of one thing: a colour each, and a dash for eyes that see none."""
    columns = columns_of(found, times, formats.SHARES)
    return [
        Line(f"p{percent}", values, f"--p{percent}", dash)
        for percent, values, dash in zip(formats.PERCENTILES, columns, DASHES, strict=True)
    ]


def before_line(before: Histograms, times: Sequence[datetime], percent: int) -> list[Line]:
    """The same percentile a period earlier, where there is anything to compare with."""
    if not before:
        return []
    values = values_of(before, times, percent / 100)
    return [Line(f"p{percent} of the previous period", values, BEFORE, "longdash")]


def values_of(
    found: Histograms, times: Sequence[datetime], share: float, unit: float = formats.US_PER_MS
) -> list[float | None]:
    """A percentile at each time, in so many of the recorded unit."""
    return columns_of(found, times, (share,), unit)[0]


def columns_of(
    found: Histograms,
    times: Sequence[datetime],
    shares: Sequence[float],
    unit: float = formats.US_PER_MS,
) -> list[list[float | None]]:
    """Several percentiles at each time, a list of values for each of them."""
    columns: list[list[float | None]] = [[] for _ in shares]
    for at in times:
        values = found[at].percentiles(shares) if at in found else [None] * len(shares)
        for column, value in zip(columns, values, strict=True):
            column.append(None if value is None else value / unit)
    return columns


def pick(
    steps: Mapping[datetime, Mapping[str, Histogram]], measure: str
) -> dict[datetime, Histogram]:
    return {at: found[measure] for at, found in steps.items() if measure in found}


def worst(line: Line, words: Callable[[str], str], nothing: str) -> str:
    """A finding on the greatest value of a line in milliseconds."""
    most = max((value for value in line.values if value is not None), default=None)
    return nothing if most is None else words(formats.duration(most * formats.US_PER_MS))
