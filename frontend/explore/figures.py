"""The figures of Explore: a row for each group with what it was in the other span, and one chart.

Pure arithmetic: percentiles come from merged histograms, never from other percentiles.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from controlplane.kernel.money import usd_short, usd_text
from controlplane.telemetry.exploration import Explored, ExploredGroup
from controlplane.telemetry.tiers import step_floor
from frontend.explore.question import (
    COUNTS_ALONE,
    DIMENSION_WORDS,
    MEASURES_OFFERED,
    ExploreQuestion,
)
from frontend.explore.reads import Findings, narrowed_to
from frontend.shared import formats
from frontend.shared.panels import TablePanel

ROWS_SHOWN = 100
Value = tuple[Any, ...]
Groups = Mapping[Value, ExploredGroup]
Figure = Callable[[ExploredGroup], float | None]


class Column(NamedTuple):
    """One figure of a group: its head, the figure, and it as pages and files write it."""

    head: str
    figure: Figure
    text: Callable[[Any], str]
    exact: Callable[[Any], str]
    # The percentile that it is, of which few values say little.
    percentile: int = 0


def _share(part: str, whole: Callable[[ExploredGroup], int]) -> Figure:
    def figure(group: ExploredGroup) -> float | None:
        of = whole(group)
        return getattr(group.usage, part) / of if of else None

    return figure


def _count(name: str) -> Figure:
    return lambda group: getattr(group.usage, name)


def _requests(group: ExploredGroup) -> int:
    return group.usage.requests


def _times(group: ExploredGroup) -> int:
    return group.times.count


def _prompt(group: ExploredGroup) -> int:
    return group.usage.uncached + group.usage.cached


def _percentile(percent: int) -> Figure:
    return lambda group: group.times.percentile(percent / 100)


def _percent(value: float | None) -> str:
    return formats.MISSING if value is None else formats.percent(value, 1)


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value / formats.US_PER_MS:.6g}"


COUNTED = (
    Column("Requests", _requests, formats.count, str),
    Column("Errors", _count("errors"), formats.count, str),
    Column("Error rate", _share("errors", _requests), _percent, _plain),
    Column("Tokens in", _prompt, formats.count, str),
    Column("Cached", _count("cached"), formats.count, str),
    Column("Hit rate", _share("cached", _prompt), _percent, _plain),
    Column("Tokens out", _count("output"), formats.count, str),
    Column("Cost, USD", _count("nano"), usd_short, usd_text),
)
TIMED = (
    *(
        Column(f"p{percent}, ms", _percentile(percent), formats.milliseconds, _ms, percent)
        for percent in formats.PERCENTILES
    ),
    Column("n", _times, formats.count, str),
)


def columns_of(question: ExploreQuestion) -> tuple[Column, ...]:
    return COUNTED if question.measure == COUNTS_ALONE else (*COUNTED, *TIMED)


class ExploredCell(NamedTuple):
    """One figure of a row; `change` is against the other span, where there is one."""

    head: str
    text: str
    change: str = ""
    before: str = ""
    tone: str = ""


class ExploredRow(NamedTuple):
    """A group, and the queries of its own Explore and of its requests; empty where none says so."""

    names: list[tuple[str, str]]
    cells: list[ExploredCell]
    narrow: str = ""
    requests: str = ""


@dataclass(frozen=True)
class Exploring:
    """All that the page shows: rows, the sum of all, and what the figures are based on."""

    question: ExploreQuestion
    findings: Findings
    groups: Groups
    before: Groups | None

    @property
    def empty(self) -> bool:
        return not self.groups

    @property
    def ordered(self) -> list[Value]:
        orders: dict[str, Figure] = {
            "errors": COUNTED[2].figure,
            "hits": lambda group: -(COUNTED[5].figure(group) or 0),
            "cost": _count("nano"),
            "slow": _percentile(95),
        }
        names = {value: self.name(value) for value in self.groups}
        if self.question.order == "name":
            return sorted(self.groups, key=lambda value: (*map(_sortable, value), names[value]))
        if self.over_time and not self.question.order:
            place = self.question.groups.index("time")
            # The newest first; groups of one time stay in the order of their requests.
            return sorted(self.groups, key=lambda value: value[place], reverse=True)
        figure = orders.get(self.question.order, _requests)
        least = float("-inf")
        found = {value: figure(group) for value, group in self.groups.items()}
        return sorted(
            found, key=lambda value: (-(least if (x := found[value]) is None else x), names[value])
        )

    @property
    def title(self) -> str:
        words = " and ".join(DIMENSION_WORDS[name].lower() for name in self.question.groups)
        measure = self.question.measure
        if measure == COUNTS_ALONE:
            return f"Requests by {words}"
        return f"Requests by {words} · {MEASURES_OFFERED[measure]}"

    @property
    def over_time(self) -> bool:
        return "time" in self.question.groups

    @property
    def heads(self) -> str:
        words = [DIMENSION_WORDS[name] for name in self.question.groups]
        return " | ".join([*words, *(f"#{one.head}" for one in columns_of(self.question))])

    @property
    def rows(self) -> list[ExploredRow]:
        ordered = self.ordered
        rows = [self._row(value) for value in ordered[:ROWS_SHOWN]]
        others = [self.groups[value] for value in ordered[ROWS_SHOWN:]]
        rest = ExploredGroup()
        for group in (*others, self.findings.now.beyond):
            rest.add(group)
        if rest.usage.requests:
            rows.append(self._sum(f"{formats.count(len(others))} others" if others else "Others",
                                  rest, None))  # fmt: skip
        return rows

    @property
    def whole(self) -> ExploredRow:
        before = self.findings.before.whole if self.before and self.findings.before else None
        return self._sum("All", self.findings.now.whole, before)

    @property
    def table(self) -> TablePanel:
        """Every group as a file has it, and the sum of those beyond the bound."""
        question, compared = self.question, self.before is not None
        columns = columns_of(question)
        head = [DIMENSION_WORDS[name] for name in question.groups]
        head += [one.head for one in columns]
        head += [f"{one.head}, other span" for one in columns if compared]
        body = []
        for value in self.ordered:
            names = [text for _, text in self.names(value)]
            body.append([*names, *self._exact(self.groups[value], value)])
        beyond = self.findings.now.beyond
        if beyond.usage.requests:
            blank = [""] * (len(question.groups) - 1)
            body.append(["Others", *blank, *self._exact(beyond, None)])
        return TablePanel("groups", "Groups", head, body)

    def names(self, value: Value) -> list[tuple[str, str]]:
        pairs = zip(self.question.groups, value, strict=True)
        return [(DIMENSION_WORDS[name], self.findings.name(name, one)) for name, one in pairs]

    def name(self, value: Value) -> str:
        return " · ".join(text for _, text in self.names(value))

    def _exact(self, group: ExploredGroup, value: Value | None) -> list[str]:
        columns = columns_of(self.question)
        texts = [one.exact(one.figure(group)) for one in columns]
        if self.before is not None:
            other = self.before.get(value) if value is not None else None
            texts += [one.exact(one.figure(other)) if other else "" for one in columns]
        return texts

    def _row(self, value: Value) -> ExploredRow:
        other = None if self.before is None else self.before.get(value, ExploredGroup())
        cells = self._cells(self.groups[value], other)
        narrowed = narrowed_to(self.question, value)
        if narrowed is None:
            return ExploredRow(self.names(value), cells)
        listed = narrowed.filters.query(narrowed.within) if narrowed.listable else ""
        return ExploredRow(self.names(value), cells, narrowed.query, listed)

    def _sum(self, name: str, group: ExploredGroup, other: ExploredGroup | None) -> ExploredRow:
        first, *rest = (DIMENSION_WORDS[one] for one in self.question.groups)
        names = [(first, name), *((word, "") for word in rest)]
        return ExploredRow(names, self._cells(group, other))

    def _cells(self, group: ExploredGroup, other: ExploredGroup | None) -> list[ExploredCell]:
        return [_cell(one, group, other) for one in columns_of(self.question)]


def _cell(column: Column, group: ExploredGroup, other: ExploredGroup | None) -> ExploredCell:
    value = column.figure(group)
    few = column.percentile and formats.few(column.percentile, group.times.count)
    made = ExploredCell(column.head, column.text(value), tone=formats.FEW if few else "")
    if other is None or column.figure is _times:
        return made
    before = column.figure(other)
    change = formats.MISSING
    if value is not None and before:
        change = formats.change_words(value, before)
    return made._replace(change=change, before=column.text(before))


def _sortable(one: Any) -> tuple[int, Any]:
    """Numbers by size, moments by time, the rest by its text."""
    if isinstance(one, datetime):
        return 0, one.timestamp()
    return (0, one) if isinstance(one, int) else (1, str(one))


def make_exploring(question: ExploreQuestion, findings: Findings) -> Exploring:
    before = _moved(findings.before, question) if findings.before else None
    # Of a span without requests there is nothing to tell but that.
    return Exploring(question, findings, findings.now.groups, before or None)


def _moved(found: Explored, question: ExploreQuestion) -> Groups:
    """Groups of the other span by the times of this one."""
    other = question.other_span
    if other is None or "time" not in question.groups:
        return found.groups
    shift, step_s = question.within.start - other.start, question.within.step_s
    moved: dict[Value, ExploredGroup] = {}
    for value, group in found.groups.items():
        at = tuple(
            step_floor(one + shift, step_s) if isinstance(one, datetime) else one for one in value
        )
        moved.setdefault(at, ExploredGroup()).add(group)
    return moved


def basis_words(found: Explored, question: ExploreQuestion) -> str:
    """What the figures are based on: exactly what was recorded, or so many requests of all."""
    total = found.whole.usage.requests
    if found.rows is None:
        return "From roll-ups, exact."
    if question.measure == COUNTS_ALONE or found.rows == total:
        return f"From all {formats.count(total)} recorded requests, exact."
    return (
        f"Percentiles are based on {formats.count(found.rows)} of {formats.count(total)} requests,"
        " a random part; counts are exact."
    )
