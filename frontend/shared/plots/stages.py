"""The seven stages over time, and what none of them accounts for; and the cache hit rate."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from controlplane.kernel.histogram import Histogram
from controlplane.telemetry.selectors import Point, UsageSum
from frontend.shared import formats
from frontend.shared.plots.figure import (
    BEFORE,
    Axis,
    Figure,
    Line,
    before_line,
    columns_of,
    percentile_lines,
    pick,
    worst,
)
from frontend.shared.stages import LABELS, OVERHEAD, STAGE_NAMES, UNATTRIBUTED

HUNDRED = 100.0
Points = Mapping[datetime, Point]
NOTHING = "No data in this range."
NONE = "--stage-none"


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


def _prompt_shares(points: Points, times: Sequence[datetime], named: str) -> list[float | None]:
    """Percent of all prompt tokens; a gap where no prompt was read."""
    shares: list[float | None] = []
    for at in times:
        usage = points[at].usage if at in points else UsageSum()
        prompt = usage.uncached + usage.cached
        shares.append(HUNDRED * getattr(usage, named) / prompt if prompt else None)
    return shares


def stages_figure(points: dict[datetime, Point], times: Sequence[datetime], percent: int) -> Figure:
    """One percentile of each, on a logarithmic axis."""
    (lines,) = _lines(points, times, (percent / 100,))
    return _percentile_figure(lines, times, percent)


def stage_figures(
    points: dict[datetime, Point], times: Sequence[datetime], percent: int
) -> list[Figure]:
    """The same, and the medians stacked, from one walk over the histograms."""
    lines, medians = _lines(points, times, (percent / 100, 0.5))
    return [_percentile_figure(lines, times, percent), _stacked_figure(medians, times)]


def overhead_figure(
    steps: Mapping[datetime, Mapping[str, Histogram]],
    before: Mapping[datetime, Mapping[str, Histogram]],
    times: Sequence[datetime],
    percent: int,
) -> Figure:
    """What the gateway adds to inference, and one percentile of it a period earlier."""
    lines = percentile_lines(pick(steps, OVERHEAD), times)
    words = "Total less inference; the worst p99 was {}. All tenants.".format
    finding = worst(lines[-1], words, NOTHING)
    lines += before_line(pick(before, OVERHEAD), times, percent)
    axis = Axis("ms", logarithmic=True)
    return Figure(OVERHEAD, "Overhead", finding, times, lines, axis)


def _percentile_figure(lines: list[Line], times: Sequence[datetime], percent: int) -> Figure:
    tops = [(max((v for v in line.values if v is not None), default=0.0), line) for line in lines]
    top, slowest = max(tops, key=lambda pair: pair[0])
    finding = (
        f"{slowest.name.lstrip('1234567 ')} was slowest: up to"
        f" {formats.duration(top * formats.US_PER_MS)}."
        " All tenants of this installation; percentiles of stages do not add up."
        if top
        else NOTHING
    )
    axis = Axis("ms", logarithmic=True)
    return Figure("stages", f"Stages over time, p{percent}", finding, times, lines, axis)


def _stacked_figure(lines: list[Line], times: Sequence[datetime]) -> Figure:
    most = max((sum(v or 0 for v in each) for each in zip(*(line.values for line in lines),
                strict=True)), default=0.0)  # fmt: skip
    finding = (
        f"Medians add up to {formats.duration(most * formats.US_PER_MS)}. The sum of medians is "
        "not the median of requests: it shows which stage is large, not how long a request takes."
        if most
        else NOTHING
    )
    title = "Medians of the stages, stacked"
    return Figure("stacked", title, finding, times, lines, Axis("ms"), stacked=True)


def _lines(
    points: dict[datetime, Point], times: Sequence[datetime], shares: Sequence[float]
) -> list[list[Line]]:
    """The lines of all stages, once for each share."""
    steps = {at: point.everyone for at, point in points.items()}
    looks = [
        (name, f"{number} {LABELS[name]}", f"--stage-{number}", "solid")
        for number, name in enumerate(STAGE_NAMES, start=1)
    ]
    made: list[list[Line]] = [[] for _ in shares]
    for name, words, color, dash in [*looks, (UNATTRIBUTED, "Other", NONE, "dot")]:
        columns = columns_of(pick(steps, name), times, shares)
        for lines, values in zip(made, columns, strict=True):
            lines.append(Line(words, values, color, dash))
    return made
