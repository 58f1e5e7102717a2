"""Axes of charts as Plotly takes them; what is on a logarithmic one is chosen here.

Plotly puts no label at all on a logarithmic axis that holds no power of ten.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import floor, log10
from typing import Any

# Labels within a decade: the fewer decades, the more.
COARSE, MIDDLE, FINE = (1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
COARSE_FROM, MIDDLE_FROM = 2.5, 0.4
PADDING = 0.03


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
        "title": {"text": "UTC", "standoff": 8},
        # Two lines of labels, where the day changes, would be written over the title.
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
