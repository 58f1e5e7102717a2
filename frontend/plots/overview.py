"""The Overview's charts over time, from the points of a range. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from controlplane.telemetry.selectors import Point, UsageSum
from frontend import formats
from frontend.plots.axes import Axis
from frontend.plots.figure import Figure, Line
from frontend.plots.queue import Depth, queue_figures
from frontend.plots.stages import overhead_figure, stages_figure
from frontend.plots.times import BEFORE, before_line, percentile_lines, pick, worst
from frontend.ranges import TimeRange

HUNDRED = 100.0
Points = Mapping[datetime, Point]


def make_figures(
    points: dict[datetime, Point],
    before: Points,
    within: TimeRange,
    depth: dict[datetime, Depth],
    percent: int,
) -> list[Figure]:
    """All of them, in their order on the page; `percent` chooses the stages' percentile."""
    times = within.steps
    return [
        _traffic_figure(points, before, within),
        _own_figure("total", "Total time", (points, before), times, percent),
        stages_figure(points, times, percent),
        _own_figure("ttft", "Time to first token", (points, before), times, percent),
        overhead_figure(
            {at: point.everyone for at, point in points.items()},
            {at: point.everyone for at, point in before.items()},
            times,
            percent,
        ),
        _throughput_figure(points, within),
        *queue_figures(depth, times),
        cache_figure(points, before, times),
    ]


def _lasted_s(within: TimeRange) -> list[float]:
    """Seconds of each step; the present one has not lasted its full length yet."""
    return [min(within.step_s, max(1.0, (within.end - at).total_seconds())) for at in within.steps]


def _traffic_figure(points: Points, before: Points, within: TimeRange) -> Figure:
    times, lasted_s = within.steps, _lasted_s(within)
    lines = [
        Line("requests", _rates(points, times, "requests", lasted_s), "--stage-5"),
        Line("failed", _rates(points, times, "errors", lasted_s), "--bad"),
    ]
    if before:
        rates = _rates(before, times, "requests", [within.step_s] * len(times))
        lines.append(Line("requests of the period before", rates, BEFORE, "longdash"))
    failed = sum(point.usage.errors for point in points.values())
    sent = sum(point.usage.requests for point in points.values())
    finding = (
        f"{failed:,} of {sent:,} requests failed with 4xx or 5xx."
        if sent
        else "Nothing was sent in this range."
    )
    return Figure("traffic", "Requests a second", finding, times, lines, Axis("requests/s"))


def _throughput_figure(points: Points, within: TimeRange) -> Figure:
    times, lasted_s = within.steps, _lasted_s(within)
    lines = [
        Line("prompt, computed", _rates(points, times, "uncached", lasted_s), "--stage-6"),
        Line("prompt, from the cache", _rates(points, times, "cached", lasted_s), "--stage-2"),
        Line("answers", _rates(points, times, "output", lasted_s), "--stage-5"),
    ]
    computed = sum(point.usage.uncached for point in points.values())
    written = sum(point.usage.output for point in points.values())
    finding = (
        f"{formats.rate(computed / written)} prompt tokens were computed for each token of an"
        " answer: many want prefill, few want decode."
        if written
        else "No answer was written in this range."
    )
    return Figure("throughput", "Tokens a second", finding, times, lines, Axis("tokens/s"))


def _rates(
    points: Points, times: Sequence[datetime], figure: str, lasted_s: Sequence[float]
) -> list[float | None]:
    """A gap where no gateway recorded anything at all."""
    return [
        getattr(points[at].usage, figure) / seconds if at in points else None
        for at, seconds in zip(times, lasted_s, strict=True)
    ]


def _own_figure(
    measure: str,
    title: str,
    pair: tuple[Points, Points],
    times: Sequence[datetime],
    percent: int,
) -> Figure:
    """Percentiles of the organization's own requests, and one of the period before."""
    found, before = (
        pick({at: point.own for at, point in points.items()}, measure) for points in pair
    )
    lines = percentile_lines(found, times, "--stage-5")
    nothing = "No answer got so far in this range."
    finding = worst(lines[-1], "The worst p99 was {}.".format, nothing)
    axis = Axis("ms", logarithmic=True)
    lines += before_line(before, times, percent)
    return Figure(measure, title, finding, times, lines, axis)


def cache_figure(points: Points, before: Points, times: Sequence[datetime]) -> Figure:
    """Shares of prompt tokens: in the fleet, where routing went, and read from the cache."""
    values, captured, available = (
        _prompt_shares(points, times, name) for name in ("cached", "captured", "available")
    )
    known = [value for value in values if value is not None]
    finding = (
        f"Between {min(known):.0f} and {max(known):.0f} % of prompt tokens came from the cache."
        if known
        else "No prompt was read in this range."
    )
    lines = [
        Line("available in the fleet", available, "--muted", "dot"),
        Line("captured by routing", captured, "--stage-4", "dash"),
        Line("delivered by engines", values, "--stage-2"),
    ]
    if before:
        shares = _prompt_shares(before, times, "cached")
        lines.append(Line("delivered in the period before", shares, BEFORE, "longdash"))
    return Figure("cache", "Cache hit rate", finding, times, lines, Axis("%", most=HUNDRED))


def _prompt_shares(points: Points, times: Sequence[datetime], figure: str) -> list[float | None]:
    """Percent of all prompt tokens; a gap where no prompt was read."""
    shares: list[float | None] = []
    for at in times:
        usage = points[at].usage if at in points else UsageSum()
        prompt = usage.uncached + usage.cached
        shares.append(HUNDRED * getattr(usage, figure) / prompt if prompt else None)
    return shares
