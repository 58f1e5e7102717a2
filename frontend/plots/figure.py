"""A line chart over time with caption, table and CSV; its colours are names of CSS tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from frontend.plots.config import plot_config

MARGIN = {"l": 56, "r": 12, "t": 8, "b": 40}


@dataclass(frozen=True)
class Line:
    """One trace; None leaves a gap, since missing is not zero."""

    name: str
    values: Sequence[float | None]
    color: str
    dash: str = "solid"


@dataclass(frozen=True)
class Axis:
    """The value axis: its title carries the unit."""

    title: str
    logarithmic: bool = False
    from_zero: bool = True
    most: float | None = None


@dataclass(frozen=True)
class Figure:
    """One chart. `name` is its place in the page and its CSV's file name."""

    name: str
    title: str
    finding: str
    times: Sequence[datetime]
    lines: Sequence[Line]
    axis: Axis

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return all(value is None for line in self.lines for value in line.values)

    @property
    def head(self) -> list[str]:
        """Column names of the table and the CSV."""
        return ["Time, UTC", *(f"{line.name}, {self.axis.title}" for line in self.lines)]

    def rows(self) -> list[list[str]]:
        """The same figures as text, oldest first; a gap is an empty cell."""
        made = []
        for place, moment in enumerate(self.times):
            values = [line.values[place] for line in self.lines]
            if any(value is not None for value in values):
                cells = ["" if value is None else f"{value:.6g}" for value in values]
                made.append([moment.strftime("%Y-%m-%d %H:%M:%S"), *cells])
        return made

    def as_json(self) -> dict[str, Any]:
        """What the browser hands to Plotly."""
        return {"data": self._traces(), "layout": self._layout(), "config": plot_config()}

    def _traces(self) -> list[dict[str, Any]]:
        times = [moment.strftime("%Y-%m-%dT%H:%M:%S") for moment in self.times]
        return [
            {
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
            for line in self.lines
        ]

    def _layout(self) -> dict[str, Any]:
        value_axis: dict[str, Any] = {
            "title": {"text": self.axis.title, "standoff": 6},
            "type": "log" if self.axis.logarithmic else "linear",
            "gridcolor": "--line",
            "zerolinecolor": "--line",
            "automargin": True,
            "exponentformat": "none",
        }
        if self.axis.logarithmic:
            value_axis["dtick"] = 1
        elif self.axis.most is not None:
            value_axis["range"] = [0, self.axis.most]
        elif self.axis.from_zero:
            value_axis["rangemode"] = "tozero"
        return {
            "margin": MARGIN,
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": "--muted", "family": "--font", "size": 12},
            "hovermode": "x unified",
            "hoverlabel": {"bgcolor": "--raised", "bordercolor": "--line"},
            "showlegend": len(self.lines) > 1,
            "legend": {
                "orientation": "h",
                "y": 1.02,
                "yanchor": "bottom",
                "x": 0,
                "xanchor": "left",
            },
            "xaxis": {
                "type": "date",
                "gridcolor": "--line",
                "title": {"text": "UTC", "standoff": 8},
                # Two lines of labels, where the day changes, would be written over the title.
                "automargin": True,
                "range": [self.times[0].isoformat(), self.times[-1].isoformat()]
                if self.times
                else None,
            },
            "yaxis": value_axis,
            "uirevision": self.name,
        }
