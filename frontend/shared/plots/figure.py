"""Charts with caption, table and CSV: lines over time; their colours are names of CSS tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from frontend.shared import formats
from frontend.shared.plots.axes import Axis, time_axis, value_axis
from frontend.shared.plots.config import plot_config

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
        "legend": {
            "orientation": "h",
            "y": 1.02,
            "yanchor": "bottom",
            "x": 0,
            "xanchor": "left",
        },
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
            "name": line.name,
            "x": times,
            "y": list(line.values),
            "line": {"color": line.color, "width": 2, "dash": line.dash},
            "hovertemplate": "%{y:.3s}",
        }
        if self.stacked:
            trace |= {"mode": "lines", "stackgroup": "one", "fillcolor": line.color}
        return trace
