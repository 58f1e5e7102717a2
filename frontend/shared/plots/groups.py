"""A chart with a column for each of some groups, such as lengths of prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend.shared.plots import figure

SYMBOLS = ("circle", "diamond", "square", "cross")


@dataclass(frozen=True)
class GroupFigure:
    """One chart with a column for each of `groups`; `counts` are the values behind a column."""

    name: str
    title: str
    finding: str
    groups: Sequence[str]
    counts: Sequence[int]
    lines: Sequence[figure.Line]
    axis: figure.Axis
    what: str

    @property
    def empty(self) -> bool:
        return not any(self.counts)

    @property
    def head(self) -> list[str]:
        return [self.what, "n", *(f"{line.name}, {self.axis.title}" for line in self.lines)]

    def rows(self) -> list[list[str]]:
        """The same figures as text; a group of which nothing is known has empty cells."""
        made = []
        for place, group in enumerate(self.groups):
            values = [line.values[place] for line in self.lines]
            cells = ["" if value is None else f"{value:.6g}" for value in values]
            made.append([group, str(self.counts[place]), *cells])
        return made

    def as_json(self) -> dict[str, Any]:
        level = {
            "type": "category",
            "gridcolor": "--line",
            "title": {"text": self.what, "standoff": 8},
            "automargin": True,
        }
        values = (value for line in self.lines for value in line.values)
        upright = figure.value_axis(self.axis, values)
        layout = figure.plain_layout(self.name, level=level, upright=upright)
        layout["showlegend"] = True
        return {"data": self._traces(), "layout": layout, "config": figure.plot_config()}

    def _traces(self) -> list[dict[str, Any]]:
        return [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "marker": {"size": 9, "symbol": symbol},
                "name": figure.plain(line.name),
                "x": [figure.plain(group) for group in self.groups],
                "y": list(line.values),
                "line": {"color": line.color, "width": 1, "dash": line.dash},
                "hovertemplate": "%{y:.3s}",
            }
            for line, symbol in zip(self.lines, SYMBOLS, strict=False)
        ]
