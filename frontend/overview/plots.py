"""The Overview's charts over time, from the points of a range. Pure arithmetic."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from controlplane.telemetry.selectors import Point
from frontend.shared import formats
from frontend.shared.plots.axes import Axis
from frontend.shared.plots.cache import cache_figure
from frontend.shared.plots.figure import Figure, Line
from frontend.shared.plots.queue import Depth, queue_figures
from frontend.shared.plots.stages import overhead_figure, stages_figure
from frontend.shared.plots.times import BEFORE, before_line, percentile_lines, pick, worst
from frontend.shared.ranges import TimeRange

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
        lines.append(Line("requests of the previous period", rates, BEFORE, "longdash"))
    failed = sum(point.usage.errors for point in points.values())
    sent = sum(point.usage.requests for point in points.values())
    finding = (
        f"{failed:,} of {sent:,} requests failed with 4xx or 5xx."
        if sent
        else "No requests in this range."
    )
    return Figure("traffic", "Requests per second", finding, times, lines, Axis("requests/s"))


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
        f"{formats.rate(computed / written)} prompt tokens were computed per output token: a high "
        "ratio means prefill load, a low one decode load."
        if written
        else "No responses in this range."
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
    nothing = "No data in this range."
    finding = worst(lines[-1], "The worst p99 was {}.".format, nothing)
    axis = Axis("ms", logarithmic=True)
    lines += before_line(before, times, percent)
    return Figure(measure, title, finding, times, lines, axis)
