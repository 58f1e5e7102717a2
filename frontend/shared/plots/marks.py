"""Upright lines, numbered, on charts over time: what was published or started meanwhile."""

from collections.abc import Sequence
from typing import Any

from controlplane.slos.marks import Mark
from frontend.shared.plots.figure import plain

# Room for the numbers above the lines.
TOP = 24


def marked(figure: dict[str, Any], marks: Sequence[Mark]) -> dict[str, Any]:
    """A chart's JSON with its marks; one that is not over time stays as it is."""
    layout = figure["layout"]
    if not marks or layout.get("xaxis", {}).get("type") != "date":
        return figure
    margin = {**layout["margin"], "t": max(TOP, layout["margin"]["t"])}
    return {
        **figure,
        "layout": {
            **layout,
            "margin": margin,
            "shapes": [_line(mark) for mark in marks],
            "annotations": [_number(mark, place) for place, mark in enumerate(marks, start=1)],
        },
    }


def _line(mark: Mark) -> dict[str, Any]:
    at = _moment(mark)
    line = {"color": "--muted", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _number(mark: Mark, place: int) -> dict[str, Any]:
    return {
        "x": _moment(mark), "y": 1, "yref": "paper", "yanchor": "bottom",
        "text": str(place), "hovertext": plain(mark.text), "showarrow": False,
    }  # fmt: skip


def _moment(mark: Mark) -> str:
    return mark.at.strftime("%Y-%m-%dT%H:%M:%S")
