"""The chart of the cache hit rate over time."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from controlplane.telemetry.selectors import Point, UsageSum
from frontend.shared.plots.axes import Axis
from frontend.shared.plots.figure import Figure, Line
from frontend.shared.plots.times import BEFORE

HUNDRED = 100.0
Points = Mapping[datetime, Point]


def cache_figure(points: Points, before: Points, times: Sequence[datetime]) -> Figure:
    """Shares of prompt tokens: in the fleet, where routing went, and read from the cache."""
    values, captured, available = (
        _prompt_shares(points, times, name) for name in ("cached", "captured", "available")
    )
    known = [value for value in values if value is not None]
    finding = (
        f"Between {min(known):.0f} and {max(known):.0f} % of prompt tokens came from the cache."
        if known
        else "No prompts in this range."
    )
    lines = [
        Line("available in the fleet", available, "--muted", "dot"),
        Line("captured by routing", captured, "--stage-4", "dash"),
        Line("delivered by engines", values, "--stage-2"),
    ]
    if before:
        shares = _prompt_shares(before, times, "cached")
        lines.append(Line("delivered in the previous period", shares, BEFORE, "longdash"))
    return Figure("cache", "Cache hit rate", finding, times, lines, Axis("%", most=HUNDRED))


def _prompt_shares(points: Points, times: Sequence[datetime], figure: str) -> list[float | None]:
    """Percent of all prompt tokens; a gap where no prompt was read."""
    shares: list[float | None] = []
    for at in times:
        usage = points[at].usage if at in points else UsageSum()
        prompt = usage.uncached + usage.cached
        shares.append(HUNDRED * getattr(usage, figure) / prompt if prompt else None)
    return shares
