"""An objective's error budget over its period, with what happened meanwhile marked on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.kernel.ids import public_id
from controlplane.slos.selectors import BurnDown
from frontend.shared.plots.figure import Axis, Figure, Line
from frontend.slos.objectives import left_words

HUNDRED = 100.0
MARKS_DRAWN_MAX = 12


@dataclass(frozen=True)
class BurnDownFigure(Figure):
    """A line of what is left, and an upright line, numbered, for each mark."""

    marks: Sequence[tuple[datetime, str]] = ()

    def as_json(self) -> dict[str, Any]:
        made = super().as_json()
        layout = made["layout"]
        # Room for the numbers above the marks.
        layout["margin"] = {**layout["margin"], "t": 24}
        layout["shapes"] = [
            {
                "type": "line",
                "x0": at.isoformat(),
                "x1": at.isoformat(),
                "yref": "paper",
                "y0": 0,
                "y1": 1,
                "line": {"color": "--muted", "width": 1, "dash": "dot"},
            }
            for at, _ in self.marks[:MARKS_DRAWN_MAX]
        ]
        layout["annotations"] = [
            {
                "x": at.isoformat(),
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "text": str(number),
                "showarrow": False,
            }
            for number, (at, _) in enumerate(self.marks[:MARKS_DRAWN_MAX], start=1)
        ]
        return made


def burn_down_figure(found: BurnDown, now: datetime) -> BurnDownFigure:
    """From whole at the period's beginning to what is left now."""
    objective, left = found.standing.objective, found.standing.left
    times = [found.opens, *(min(one.at, now) for one in found.hours)]
    values = [HUNDRED, *(round(HUNDRED * one.left, 3) for one in found.hours)]
    if left is not None:
        times.append(now)
        values.append(round(HUNDRED * left, 3))
    finding = "No data in this period yet."
    if left is not None:
        finding = (
            f"{left_words(left)} of the error budget of {objective.period_days} days is left;"
            f" {found.standing.period.bad:,} of {found.standing.period.total:,} requests spent it."
        )
    return BurnDownFigure(
        name=public_id("objective", objective.id),
        title="Error budget left",
        finding=finding,
        times=times if left is not None else [],
        lines=[Line("Budget left", values if left is not None else [], "--link")],
        axis=Axis("% of the budget"),
        marks=[(mark.at, mark.text) for mark in found.marks],
    )
