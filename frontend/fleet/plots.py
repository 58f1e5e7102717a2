"""The fleet over time: sequences under way, batches, KV memory, and what happened how often."""

from collections.abc import Mapping
from datetime import datetime

from controlplane.kernel import measures
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import BATCH, KV_USED_PERMILLE, RUNNING
from frontend.shared.plots.figure import DASHES, Axis, Figure, Histograms, Line, pick, values_of

PERMILLE_OF_PERCENT = 10
SHARES = ((0.5, "p50"), (0.95, "p95"))
NOTHING = "No samples in this range."
EVENT_LINES = (
    (measures.PREEMPTED, "preempted for memory", "--stage-5", "solid"),
    (measures.SHED, "refused for lack of capacity", "--stage-4", "solid"),
    (measures.RETRIED, "retried on another node", "--stage-6", "solid"),
    (measures.CANCELLED, "cancelled by client", "--muted", "dot"),
    (measures.BREAKER_OPENED, "breaker opened", "--stage-1", "dash"),
    (measures.COLD_START, "node started", "--stage-2", "dash"),
)
FINISH_LINES = (
    ("stop", "stop", "--stage-5"),
    ("length", "stopped at max_tokens", "--stage-4"),
    ("tool_calls", "tool calls", "--stage-2"),
    ("content_filter", "safety", "--stage-6"),
)
# These note how many at once; the others are noted once for each.
SUMMED = frozenset((measures.PREEMPTED, measures.BREAKER_OPENED))


def fleet_figures(
    steps: Mapping[datetime, Mapping[str, Histogram]], times: list[datetime]
) -> list[Figure]:
    return [
        _spread(pick(steps, RUNNING), times, "running", "Running sequences", Axis("sequences")),
        _spread(pick(steps, BATCH), times, "batch", "Batch size per node", Axis("sequences")),
        _spread(
            pick(steps, KV_USED_PERMILLE),
            times,
            "kv",
            "KV memory used",
            Axis("% of a node's blocks", most=100),
            unit=PERMILLE_OF_PERCENT,
        ),
        _events(steps, times),
        _finishes(steps, times),
    ]


def _spread(
    found: Histograms, times: list[datetime], name: str, title: str, axis: Axis, *, unit: float = 1
) -> Figure:
    """Median, p95 and the most of a figure that is sampled every second."""
    lines = [
        Line(words, values_of(found, times, share, unit), f"--{words}", dash)
        for (share, words), dash in zip(SHARES, DASHES, strict=False)
    ]
    most = [found[at].maximum / unit if at in found else None for at in times]
    lines.append(Line("maximum", most, "--muted", "dot"))
    greatest = max((value for value in most if value is not None), default=None)
    finding = NOTHING if greatest is None else f"Up to {greatest:,.3g}, sampled every second."
    return Figure(name, title, finding, times, lines, axis)


def _events(steps: Mapping[datetime, Mapping[str, Histogram]], times: list[datetime]) -> Figure:
    lines = [
        Line(words, _counts(steps, times, measure), color, dash)
        for measure, words, color, dash in EVENT_LINES
    ]
    told = [f"{_total(line):,} {line.name}" for line in lines if _total(line)]
    finding = f"{', '.join(told)}." if told else "None in this range."
    axis = Axis("events per step")
    return Figure("events", "Incidents", finding, times, lines, axis)


def _finishes(steps: Mapping[datetime, Mapping[str, Histogram]], times: list[datetime]) -> Figure:
    lines = [
        Line(words, _counts(steps, times, measures.FINISH_EVENTS[finish]), color)
        for finish, words, color in FINISH_LINES
    ]
    lines.append(Line("other", _counts(steps, times, measures.FINISH_OTHER), "--muted"))
    total = sum(_total(line) for line in lines)
    cut = _total(lines[1])
    finding = f"{cut:,} of {total:,} responses stopped at max_tokens."
    return Figure(
        "finishes",
        "Finish reasons",
        finding if total else "No responses in this range.",
        times,
        lines,
        Axis("responses per step"),
        stacked=True,
    )


def _counts(
    steps: Mapping[datetime, Mapping[str, Histogram]], times: list[datetime], measure: str
) -> list[float | None]:
    """Events of each step; zero where others were recorded, a gap where nothing was."""
    found = pick(steps, measure)
    counts: list[float | None] = []
    for at in times:
        if at in found:
            counts.append(found[at].total if measure in SUMMED else found[at].count)
        else:
            counts.append(0 if at in steps else None)
    return counts


def _total(line: Line) -> int:
    return int(sum(value for value in line.values if value))
