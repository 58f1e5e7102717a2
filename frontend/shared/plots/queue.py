"""Requests that wait, over time: sampled counts, averaged over the time a step has lasted."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from controlplane.kernel import measures
from controlplane.telemetry.selectors import Point
from frontend.shared import formats
from frontend.shared.filters import TimeRange
from frontend.shared.plots.figure import Axis, Figure, Line

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
        return self.in_gateway + self.on_nodes


def depths(kept: Iterable[Point], within: TimeRange, now: datetime) -> dict[datetime, Depth]:
    """How many waited in each step that was sampled."""
    made = {}
    for point in kept:
        most = point.everyone.get(measures.WAITING)
        if most is None:
            continue
        # The present step has not lasted its full length yet.
        lasted_s = min(within.step_s, max(measures.SAMPLE_S, (now - point.at).total_seconds()))
        in_gateway, on_nodes, *priorities = (
            point.everyone[name].total * measures.SAMPLE_S / lasted_s
            for name in (
                measures.WAITING_IN_GATEWAY,
                measures.WAITING_ON_NODES,
                *measures.WAITING_BY_PRIORITY,
            )
            if name in point.everyone
        )
        oldest = point.everyone.get(measures.OLDEST_WAIT_MS)
        made[point.at] = Depth(
            in_gateway,
            on_nodes,
            most.maximum,
            tuple(priorities),
            None if oldest is None else oldest.maximum,
        )
    return made


def queue_figures(depth: dict[datetime, Depth], times: list[datetime]) -> list[Figure]:
    return [
        _depth_figure(depth, times),
        _priorities_figure(depth, times),
        _oldest_figure(depth, times),
    ]


def _depth_figure(depth: dict[datetime, Depth], times: list[datetime]) -> Figure:
    found = [depth.get(at) for at in times]
    most = max((each.most for each in depth.values()), default=0)
    finding = (
        f"Up to {most:,} waited at one gateway at the same time, sampled every second; all tenants."
        if most
        else "No request waited in any sample."
        if depth
        else "No samples in this range."
    )
    lines = [
        Line("in the gateway, for a node", [each and each.in_gateway for each in found], GATEWAY),
        Line("on nodes, for a first token", [each and each.on_nodes for each in found], NODES),
        Line("maximum", [each and each.most for each in found], "--muted", "dot"),
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
        else "No request waited in a gateway in any sample."
        if any(value is not None for line in lines for value in line.values)
        else "No samples in this range."
    )
    title = "Waiting in gateways, by priority"
    return Figure("priorities", title, finding, times, lines, Axis("requests"))


def _oldest_figure(depth: dict[datetime, Depth], times: list[datetime]) -> Figure:
    known = {at: each.oldest_ms for at, each in depth.items() if each.oldest_ms is not None}
    values = [known[at] / MS_PER_S if at in known else None for at in times]
    longest_ms = max(known.values(), default=None)
    finding = (
        "No samples in this range."
        if longest_ms is None
        else f"The first in a queue had waited up to {formats.duration(longest_ms * MS_PER_S)}."
        if longest_ms
        else "No request waited in a gateway in any sample."
    )
    lines = [Line("longest wait", values, GATEWAY)]
    return Figure("oldest", "Longest wait in a gateway", finding, times, lines, Axis("s"))
