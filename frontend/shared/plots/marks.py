"""Upright lines, numbered, on charts over time: what was published or started meanwhile."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from controlplane.slos.marks import Mark
from frontend.shared.plots.figure import plain

# Marks within this part of a chart's width share one number, which would else be written twice.
CLOSE = 0.03


def marked(figure: dict[str, Any], marks: Sequence[Mark]) -> dict[str, Any]:
    """A chart's JSON with its marks; one that is not over time stays as it is."""
    layout = figure["layout"]
    axis = layout.get("xaxis", {})
    if not marks or axis.get("type") != "date" or not axis.get("range"):
        return figure
    shown = {"shapes": [_line(mark) for mark in marks], "annotations": _numbers(layout, marks)}
    return {**figure, "layout": {**layout, **shown}}


def _numbers(layout: dict[str, Any], marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """Beside each line within the chart, where no legend is; close ones as a range."""
    start, end = (datetime.fromisoformat(each) for each in layout["xaxis"]["range"])
    groups: list[list[int]] = []
    for place, mark in enumerate(marks):
        if groups and mark.at - marks[groups[-1][0]].at < (end - start) * CLOSE:
            groups[-1].append(place)
        else:
            groups.append([place])
    edge = end - (end - start) * CLOSE
    return [_number(marks, places, edge) for places in groups]


def _line(mark: Mark) -> dict[str, Any]:
    at = _moment(mark)
    line = {"color": "--muted", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _number(marks: Sequence[Mark], places: list[int], edge: datetime) -> dict[str, Any]:
    first, last = places[0] + 1, places[-1] + 1
    return {
        "x": _moment(marks[places[0]]), "y": 1, "yref": "paper", "yanchor": "top",
        "xanchor": "right" if marks[places[0]].at > edge else "left",
        "text": str(first) if first == last else f"{first}–{last}", "showarrow": False,
        "hovertext": "<br>".join(plain(marks[each].text) for each in places), "font": {"size": 10},
    }  # fmt: skip


def _moment(mark: Mark) -> str:
    return mark.at.strftime("%Y-%m-%dT%H:%M:%S")
