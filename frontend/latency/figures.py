"""The Latency page's figures: where requests of all tenants spent their time. Pure arithmetic.

Percentiles of stages do not add up, and the page says so wherever they stand on one another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import CLIENT_RTT, PHASES, PROMPT_BUCKET_LABELS
from controlplane.kernel.spans import SPANS
from controlplane.telemetry.selectors import Point
from frontend.latency.heat_plot import HeatMap, cell_links
from frontend.latency.ladder import Rung, ladder
from frontend.shared import formats
from frontend.shared.asked import Asked, Choice
from frontend.shared.panels import TablePanel
from frontend.shared.plots import figure
from frontend.shared.plots.groups import GroupFigure
from frontend.shared.plots.stages import overhead_figure, stage_figures
from frontend.shared.stages import (
    MEASURE_WORDS,
    OVERHEAD,
    PHASE_WORDS,
    STAGE_NAMES,
    UNATTRIBUTED,
)
from frontend.shared.tiles import merged

MILLI = 1_000
BY_WORDS = {
    "model": "Model",
    "route": "Route",
    "pool": "Pool",
    "region": "Region",
    "prompt_bucket": "Prompt tokens",
    "status_class": "Status",
}
CHOICES = (
    Choice("by", "way to divide latency", tuple(BY_WORDS)),
    Choice("measure", "measure", tuple(MEASURE_WORDS)),
    Choice("stage", "stage", ("", *STAGE_NAMES)),
)
EVERYONE = (*STAGE_NAMES, UNATTRIBUTED, OVERHEAD, "total", "ttft", "inter_token", "tokens_per_s",
            *PHASE_WORDS)  # fmt: skip
BY_MEASURES = ("total", "ttft", "inter_token", OVERHEAD)
SLOW_SHARES = {"half are slower": 0.5, "5 % are slower": 0.05, "1 % are slower": 0.01}
GROUPS_MAX = 50
NOTHING = "No data in this range."

Merged = Mapping[str, Histogram]
Groups = Mapping[str, Merged]


def layer_measures(stage: str) -> dict[str, str]:
    """Measures of a stage's layers and the layers' own names, in their order."""
    return {
        PHASES.get(span.name, span.name): span.layer
        for span in SPANS
        if span.layer and span.stage == stage
    }


@dataclass(frozen=True)
class Read:
    """What was read: steps of the range, those of the period before, and groups of it all.

    `budgets` are microseconds at p95 by stage.
    """

    points: dict[datetime, Point]
    before: dict[datetime, Point] | None
    by: Groups
    by_bucket: Groups
    budgets: Mapping[str, int]


@dataclass(frozen=True)
class Latency:
    rungs: list[Rung]
    figures: list[figure.Plot]
    groups: TablePanel
    as_of: datetime

    @property
    def empty(self) -> bool:
        return all(rung.count == 0 for rung in self.rungs)

    @property
    def panels(self) -> list[figure.Panel]:
        return [ladder_panel(self.rungs), self.groups, *self.figures]


def wanted_measures(asked: Asked) -> tuple[str, ...]:
    """Those that the page needs; the layers only of the stage that is open."""
    layers = layer_measures(asked.chosen["stage"])
    return (*EVERYONE, *(name for name in layers if name not in EVERYONE))


def make_latency(read: Read, asked: Asked, now: datetime) -> Latency:
    stage = asked.chosen["stage"]
    shown = (*STAGE_NAMES, UNATTRIBUTED, "total", CLIENT_RTT, *layer_measures(stage))
    everyone, before = (
        merged((point.everyone for point in points.values()), shown)
        for points in (read.points, read.before or {})
    )
    return Latency(
        rungs=ladder(
            everyone, before, stage=stage, layers=layer_measures(stage), budgets=read.budgets
        ),
        figures=_figures(read, asked),
        groups=_groups_panel(read.by, asked.chosen["by"]),
        as_of=now,
    )


def _figures(read: Read, asked: Asked) -> list[figure.Plot]:
    points, times = read.points, asked.within.steps
    steps = {at: point.everyone for at, point in points.items()}
    earlier = {at: point.everyone for at, point in (read.before or {}).items()}
    measure = asked.chosen["measure"]
    axis = figure.Axis("ms", logarithmic=True)
    heat = HeatMap("heat", f"{MEASURE_WORDS[measure]} distribution", times, asked.within.step_s,
                   figure.pick(steps, measure), axis,
                   links=cell_links(measure, asked.segment.model))  # fmt: skip
    made: list[figure.Plot] = [heat, *stage_figures(points, times, asked.percent)]
    made.append(_phases_figure(steps, times, asked.percent))
    made.append(_bucket_figure(read.by_bucket))
    lines = figure.percentile_lines(figure.pick(steps, "inter_token"), times)
    finding = figure.worst(lines[-1], "The worst p99 was {}.".format, NOTHING)
    lines += figure.before_line(figure.pick(earlier, "inter_token"), times, asked.percent)
    made.append(figure.Figure("inter_token", "Time between tokens", finding, times, lines, axis))
    made.append(overhead_figure(steps, earlier, times, asked.percent))
    made.append(_speed_figure(steps, times))
    return made


def _phases_figure(
    steps: Mapping[datetime, Merged], times: list[datetime], percent: int
) -> figure.Figure:
    colors = ("--stage-6", "--stage-2", "--stage-5", "--muted", "--stage-4", "--stage-7")
    lines = [
        figure.Line(words, figure.values_of(figure.pick(steps, name), times, percent / 100), color)
        for (name, words), color in zip(PHASE_WORDS.items(), colors, strict=True)
    ]
    tops = {line.name: max((v for v in line.values if v is not None), default=0) for line in lines}
    longest = max(tops, key=lambda name: tops[name])
    finding = (
        f"{longest} took longest: up to {formats.duration(tops[longest] * formats.US_PER_MS)}."
        " For long queues add nodes; for long prefill shorten prompts or add cache; a long round "
        "trip is the client's network and not part of the total."
        if tops[longest]
        else NOTHING
    )
    title = f"Waiting, prefill, decode and networks, p{percent}"
    return figure.Figure(
        "phases", title, finding, times, lines, figure.Axis("ms", logarithmic=True)
    )


def _bucket_figure(groups: Groups) -> GroupFigure:
    found = [groups.get(str(place), {}).get("ttft") for place in range(len(PROMPT_BUCKET_LABELS))]
    columns = [[_milliseconds(one, share) for one in found] for share in formats.SHARES]
    lines = [
        figure.Line(f"p{percent}", values, f"--p{percent}", dash)
        for percent, values, dash in zip(formats.PERCENTILES, columns, figure.DASHES, strict=True)
    ]
    counts = [one.count if one else 0 for one in found]
    known = [place for place, count in enumerate(counts) if count]
    finding = NOTHING
    if known:
        first, last = (
            formats.duration((lines[1].values[place] or 0) * formats.US_PER_MS)
            for place in (known[0], known[-1])
        )
        finding = (
            f"p95 goes from {first} for prompts of {PROMPT_BUCKET_LABELS[known[0]]} tokens to"
            f" {last} for {PROMPT_BUCKET_LABELS[known[-1]]}. A rise indicates long prompts, a "
            "flat line queues."
        )
    title = "Time to first token by length of the prompt"
    axis = figure.Axis("ms", logarithmic=True)
    return GroupFigure("buckets", title, finding, PROMPT_BUCKET_LABELS, counts, lines, axis,
                       "Prompt tokens")  # fmt: skip


def _speed_figure(steps: Mapping[datetime, Merged], times: list[datetime]) -> figure.Figure:
    columns = figure.columns_of(
        figure.pick(steps, "tokens_per_s"), times, tuple(SLOW_SHARES.values()), MILLI
    )
    lines = [
        figure.Line(words, values, f"--p{percent}", dash)
        for words, values, percent, dash in zip(
            SLOW_SHARES, columns, formats.PERCENTILES, figure.DASHES, strict=True
        )
    ]
    least = min((v for v in lines[1].values if v is not None), default=None)
    finding = (
        NOTHING
        if least is None
        else f"One response in twenty was generated at {formats.rate(least)} tokens/s or slower."
    )
    return figure.Figure(
        "speed", "Tokens per second of one response", finding, times, lines, figure.Axis("tokens/s")
    )


def _milliseconds(found: Histogram | None, share: float) -> float | None:
    value = found.percentile(share) if found else None
    return None if value is None else value / formats.US_PER_MS


def _texts(found: Histogram | None) -> list[str]:
    values = found.percentiles(formats.SHARES) if found else [None] * len(formats.SHARES)
    return [formats.milliseconds(value) for value in values]


def group_name(dimension: str, value: str) -> str:
    if dimension == "prompt_bucket":
        return f"{PROMPT_BUCKET_LABELS[int(value)]} tokens"
    if dimension == "status_class":
        return f"{value}xx"
    return value or "not known"


def _groups_panel(groups: Groups, dimension: str) -> TablePanel:
    head = [BY_WORDS[dimension], "n"]
    head += [f"{MEASURE_WORDS[name]} p{p}, ms" for name in BY_MEASURES for p in formats.PERCENTILES]
    ordered = sorted(groups.items(), key=lambda pair: -_count(pair[1]))[:GROUPS_MAX]
    body = [
        [
            group_name(dimension, value),
            str(_count(found)),
            *(text for name in BY_MEASURES for text in _texts(found.get(name))),
        ]
        for value, found in ordered
    ]
    return TablePanel("by", f"By {BY_WORDS[dimension].lower()}", head, body)


def _count(found: Merged) -> int:
    return found["total"].count if "total" in found else 0


def ladder_panel(rungs: list[Rung]) -> TablePanel:
    head = ["Stage or layer", "p50, ms", "p95, ms", "p99, ms", "n", "Budget, ms"]
    rows = [
        [rung.name, *(cell.text for cell in rung.cells), str(rung.count), rung.budget_ms]
        for rung in rungs
    ]
    return TablePanel("waterfall", "Stage waterfall", head, rows)
