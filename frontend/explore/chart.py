"""The one chart of Explore: percentiles or counts of groups, side by side or over time."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from frontend.explore.figures import Exploring, Groups, Value
from frontend.explore.question import COUNTS_ALONE, DIMENSION_WORDS, MEASURES_OFFERED
from frontend.shared import formats
from frontend.shared.plots import figure
from frontend.shared.plots.groups import GroupFigure

COLUMNS_MAX = 20
LINES_MAX = 6
PERCENT = 95
COLORS = tuple(f"--stage-{number}" for number in (5, 2, 1, 4, 3, 6, 7))
NOTHING = "No data in this range."
NAME = "explored"
BEFORE = "other span"


def make_chart(found: Exploring) -> figure.Plot:
    return _lines(found) if found.over_time else _side_by_side(found)


def _title(found: Exploring) -> str:
    words = [DIMENSION_WORDS[name].lower() for name in found.question.groups]
    return f"{_of(found)} by {' and '.join(words)}"


def _of(found: Exploring) -> str:
    counted = found.question.measure == COUNTS_ALONE
    return "Requests" if counted else MEASURES_OFFERED[found.question.measure]


def _axis(found: Exploring) -> figure.Axis:
    if found.question.measure == COUNTS_ALONE:
        return figure.Axis("requests")
    return figure.Axis("ms", logarithmic=True)


def _value(found: Exploring, groups: Groups, value: Value | None, percent: int) -> float | None:
    """Of a group, in the unit of the axis."""
    group = groups.get(value) if value is not None else None
    if group is None:
        return None
    if found.question.measure == COUNTS_ALONE:
        return float(group.usage.requests)
    us = group.times.percentile(percent / 100)
    return None if us is None else us / formats.US_PER_MS


def _side_by_side(found: Exploring) -> GroupFigure:
    values = found.ordered[:COLUMNS_MAX]
    counted = found.question.measure == COUNTS_ALONE
    names = {PERCENT: "Requests"} if counted else {p: f"p{p}" for p in formats.PERCENTILES}
    lines = [
        figure.Line(
            name, [_value(found, found.groups, value, percent) for value in values],
            COLORS[0] if counted else f"--p{percent}", dash,
        )
        for (percent, name), dash in zip(names.items(), figure.DASHES, strict=False)
    ]  # fmt: skip
    if found.before is not None:
        before = [_value(found, found.before, value, PERCENT) for value in values]
        name = names[PERCENT] + ", " + BEFORE
        lines.append(figure.Line(name, before, figure.BEFORE, "longdash"))
    groups = [found.groups[value] for value in values]
    counts = [g.usage.requests if counted else g.times.count for g in groups]
    what = " and ".join(DIMENSION_WORDS[name] for name in found.question.groups)
    labels = [found.name(value) for value in values]
    line = lines[0] if counted else lines[1]
    tops = {name: value for name, value in zip(labels, line.values, strict=True) if value}
    finding = _finding(found, tops)
    if len(found.groups) > COLUMNS_MAX:
        finding += f" Only the first {COLUMNS_MAX} groups of the table are drawn."
    return GroupFigure(NAME, _title(found), finding, labels, counts, lines,
                       _axis(found), what)  # fmt: skip


def _finding(found: Exploring, tops: Mapping[str, float]) -> str:
    if not tops:
        return NOTHING
    most = max(tops, key=lambda name: tops[name])
    if found.question.measure == COUNTS_ALONE:
        return f"{most} had the most: {formats.count(round(tops[most]))}."
    return f"{most} had the slowest p{PERCENT}: {formats.duration(tops[most] * formats.US_PER_MS)}."


def _lines(found: Exploring) -> figure.Figure:
    question, times = found.question, found.question.within.steps
    counted = question.measure == COUNTS_ALONE
    alone = len(question.groups) == 1
    lines = _percentiles(found, times) if alone and not counted else _one_each(found, times)
    title = _title(found) if alone or counted else f"{_title(found)}, p{PERCENT}"
    tops = {line.name: max((v for v in line.values if v is not None), default=0) for line in lines}
    finding = NOTHING
    if any(tops.values()):
        most = max(tops, key=lambda name: tops[name])
        top = formats.duration(tops[most] * formats.US_PER_MS)
        if counted:
            top = f"{formats.count(round(tops[most]))} requests"
        finding = f"{most} reached {top}."
        if len(lines) == LINES_MAX:
            finding += f" Only the {LINES_MAX} groups with the most requests are drawn."
    return figure.Figure(NAME, title, finding, times, lines, _axis(found))


def _percentiles(found: Exploring, times: list[datetime]) -> list[figure.Line]:
    histograms = {value[0]: group.times for value, group in found.groups.items()}
    before = {value[0]: group.times for value, group in (found.before or {}).items()}
    lines = figure.percentile_lines(histograms, times)
    return lines + figure.before_line(before, times, PERCENT)


def _one_each(found: Exploring, times: list[datetime]) -> list[figure.Line]:
    """A line for each of the largest groups that time is set beside."""
    place = found.question.groups.index("time")
    series: dict[Value, dict[datetime, Value]] = {}
    sizes: Counter[Value] = Counter()
    for value, group in found.groups.items():
        other = value[:place] + value[place + 1 :]
        series.setdefault(other, {})[value[place]] = value
        sizes[other] += group.usage.requests
    made = []
    for (other, _), color in zip(sizes.most_common(LINES_MAX), COLORS, strict=False):
        at_times = [series[other].get(at) for at in times]
        pairs = found.names(next(iter(series[other].values())))
        name = " · ".join(text for at, (_, text) in enumerate(pairs) if at != place) or "Requests"
        values = [_value(found, found.groups, value, PERCENT) for value in at_times]
        made.append(figure.Line(name, values, color))
    return made
