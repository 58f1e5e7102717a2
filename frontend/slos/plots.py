"""An objective's error budget over its period."""

from datetime import datetime

from controlplane.kernel.ids import public_id
from controlplane.slos.selectors import BurnDown
from frontend.shared.plots.figure import Axis, Figure, Line
from frontend.slos.objectives import left_words

HUNDRED = 100.0


def burn_down_figure(found: BurnDown, now: datetime) -> Figure:
    """From whole at the period's beginning to what is left now."""
    objective, left = found.standing.objective, found.standing.left
    times = [found.opens, *(min(one.at, now) for one in found.hours)]
    values = [HUNDRED, *(round(HUNDRED * one.left, 3) for one in found.hours)]
    if left is not None and times[-1] < now:
        times.append(now)
        values.append(round(HUNDRED * left, 3))
    finding = "No data in this period yet."
    if left is not None:
        finding = (
            f"{left_words(left)} of the error budget of {objective.period_days} days is left;"
            f" {found.standing.period.bad:,} of {found.standing.period.total:,} requests spent it."
        )
    return Figure(
        name=public_id("objective", objective.id),
        title="Error budget left",
        finding=finding,
        times=times if left is not None else [],
        lines=[Line("Budget left", values if left is not None else [], "--link")],
        axis=Axis("% of the budget"),
    )
