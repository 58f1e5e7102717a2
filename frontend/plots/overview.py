"""The Overview's charts over time, from the points of a range. Pure arithmetic."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from controlplane.kernel.histogram import Histogram
from controlplane.telemetry.selectors import Point, UsageSum, step_floor
from frontend import formats
from frontend.cells import PERCENTILES
from frontend.plots.figure import Axis, Figure, Line
from frontend.ranges import TimeRange
from frontend.stages import LABELS, STAGE_NAMES

HUNDRED = 100.0
GATEWAY = "--stage-4"
NODES = "--stage-5"
MS_PER_S = 1000
# Place among a sample's priorities, name, colour and dash, from high to low.
_PRIORITIES = (
    (2, "high", ("--stage-6", "solid")),
    (1, "normal", ("--stage-4", "solid")),
    (0, "low", ("--muted", "dot")),
)


class Depth(NamedTuple):
    """Requests waiting in one step: averages, and the most in any one gateway's sample.

    `priorities` are those in gateways from low to high, empty where that was not kept yet, and
    `oldest_ms` the longest that any request had waited there at a sample.
    """

    in_gateway: float
    on_nodes: float
    most: int
    priorities: tuple[float, ...] = ()
    oldest_ms: int | None = None

    @property
    def mean(self) -> float:
        """Everywhere, on average."""
        return self.in_gateway + self.on_nodes


def make_figures(
    points: dict[datetime, Point], within: TimeRange, depth: dict[datetime, Depth], percent: int
) -> list[Figure]:
    """All of them, in their order on the page; `percent` chooses the stages' percentile."""
    times = _steps(within)
    return [
        _stages_figure(points, times, percent),
        _ttft_figure(points, times),
        _depth_figure(depth, times),
        _priorities_figure(depth, times),
        _oldest_figure(depth, times),
        _cache_figure(points, times),
    ]


def _milliseconds(found: Histogram | None, share: float) -> float | None:
    value = found.percentile(share) if found else None
    return None if value is None else value / formats.US_PER_MS


def _stages_figure(points: dict[datetime, Point], times: list[datetime], percent: int) -> Figure:
    lines = []
    for number, name in enumerate(STAGE_NAMES, start=1):
        values = [
            _milliseconds(points[at].everyone.get(name), percent / 100) if at in points else None
            for at in times
        ]
        lines.append(Line(f"{number} {LABELS[name]}", values, f"--stage-{number}"))
    tops = [(max((v for v in line.values if v is not None), default=0.0), line) for line in lines]
    top, slowest = max(tops, key=lambda pair: pair[0])
    finding = (
        f"{slowest.name[2:]} was slowest: up to {formats.duration(top * formats.US_PER_MS)}. "
        "All tenants of this installation; percentiles of stages do not add up."
        if top
        else "Nothing was recorded in this range."
    )
    axis = Axis("ms", logarithmic=True)
    return Figure("stages", f"Stages over time, p{percent}", finding, times, lines, axis)


def _ttft_figure(points: dict[datetime, Point], times: list[datetime]) -> Figure:
    lines = []
    for percent, dash in zip(PERCENTILES, ("solid", "dash", "dot"), strict=True):
        values = [
            _milliseconds(points[at].own.get("ttft"), percent / 100) if at in points else None
            for at in times
        ]
        lines.append(Line(f"p{percent}", values, "--stage-5", dash))
    worst = max((v for v in lines[-1].values if v is not None), default=None)
    finding = (
        "No answer reached its first token in this range."
        if worst is None
        else f"The worst p99 was {formats.duration(worst * formats.US_PER_MS)}."
    )
    return Figure("ttft", "Time to first token", finding, times, lines, Axis("ms"))


def _depth_figure(depth: dict[datetime, Depth], times: list[datetime]) -> Figure:
    found = [depth.get(at) for at in times]
    most = max((each.most for each in depth.values()), default=0)
    finding = (
        f"Up to {most:,} waited at once at one gateway, sampled every second; all tenants."
        if most
        else "Nothing waited in any sample."
        if depth
        else "Nothing was sampled in this range."
    )
    lines = [
        Line("in the gateway, for a node", [each and each.in_gateway for each in found], GATEWAY),
        Line("on nodes, for a first token", [each and each.on_nodes for each in found], NODES),
        Line("most at once", [each and each.most for each in found], "--muted", "dot"),
    ]
    axis = Axis("requests", most=max(1.0, most * 1.1))
    return Figure("queue", "Queue depth", finding, times, lines, axis)


def _priorities_figure(depth: dict[datetime, Depth], times: list[datetime]) -> Figure:
    found = [depth.get(at) for at in times]
    lines = [
        Line(
            name,
            [each.priorities[at] if each and each.priorities else None for each in found],
            *how,
        )
        for at, name, how in _PRIORITIES
    ]
    waited = [line.name for line in lines if any(line.values)]
    finding = (
        f"Of {' and '.join(waited)} priority; all tenants. Higher ones go first."
        if waited
        else "Nobody waited in a gateway in any sample."
        if any(value is not None for line in lines for value in line.values)
        else "Nothing was sampled in this range."
    )
    title = "Waiting in gateways, by priority"
    return Figure("priorities", title, finding, times, lines, Axis("requests"))


def _oldest_figure(depth: dict[datetime, Depth], times: list[datetime]) -> Figure:
    known = {at: each.oldest_ms for at, each in depth.items() if each.oldest_ms is not None}
    values = [known[at] / MS_PER_S if at in known else None for at in times]
    longest_ms = max(known.values(), default=None)
    finding = (
        "Nothing was sampled in this range."
        if longest_ms is None
        else f"The first in a queue had waited up to {formats.duration(longest_ms * MS_PER_S)}."
        if longest_ms
        else "Nobody waited in a gateway in any sample."
    )
    lines = [Line("longest wait", values, GATEWAY)]
    return Figure("oldest", "Longest wait in a gateway", finding, times, lines, Axis("s"))


def _cache_figure(points: dict[datetime, Point], times: list[datetime]) -> Figure:
    usages = [points[at].usage if at in points else UsageSum() for at in times]
    values, captured, available = (
        [_prompt_share(usage, getattr(usage, name)) for usage in usages]
        for name in ("cached", "captured", "available")
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
    return Figure("cache", "Cache hit rate", finding, times, lines, Axis("%", most=HUNDRED))


def _prompt_share(usage: UsageSum, tokens: int) -> float | None:
    """Percent of all prompt tokens."""
    prompt = usage.uncached + usage.cached
    return HUNDRED * tokens / prompt if prompt else None


def _steps(within: TimeRange) -> list[datetime]:
    at, made = step_floor(within.start, within.step_s), []
    while at < within.end:
        made.append(at)
        at += timedelta(seconds=within.step_s)
    return made
