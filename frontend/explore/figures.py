"""The figures of Explore: a row for each group with what it was in the other span, and one chart.

Pure arithmetic: percentiles come from merged histograms, never from other percentiles.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from controlplane.telemetry.exploration import Explored, ExploredGroup
from controlplane.telemetry.tiers import step_floor
from frontend.explore.columns import COUNTED, TIMED, Column, columns_of
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
NEWEST = "newest"
Value = tuple[Any, ...]
Groups = Mapping[Value, ExploredGroup]


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
        names = {value: self.name(value) for value in self.groups}
        if self.order == "name":
            return sorted(self.groups, key=lambda value: (*map(_sortable, value), names[value]))
        if self.order == NEWEST:
            place = self.question.groups.index("time")
            # Groups of one time stay in the order of their requests.
            return sorted(self.groups, key=lambda value: value[place], reverse=True)
        column = next(one for one in (*COUNTED, *TIMED) if one.order == self.order)
        sign = 1 if column.rising else -1
        found = {value: column.figure(group) for value, group in self.groups.items()}
        known = {value: sign * figure for value, figure in found.items() if figure is not None}
        last = float("inf")
        return sorted(found, key=lambda value: (known.get(value, last), names[value]))

    @property
    def order(self) -> str:
        return self.question.order or (NEWEST if self.over_time else "requests")

    @property
    def ranks(self) -> dict[str, tuple[str, str]]:
        """By head, the address that orders the rows by it, and how they are ordered now."""
        first, *others = (DIMENSION_WORDS[name] for name in self.question.groups)
        heads = {first: ("name", "ascending"), **dict.fromkeys(others, ("name", ""))}
        for column in columns_of(self.question):
            heads[column.head] = column.order, "ascending" if column.rising else "descending"
        return {
            head: (f"?{replace(self.question, order=order).query}", way * (order == self.order))
            for head, (order, way) in heads.items()
        }

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
            all_told = not self.findings.now.beyond.usage.requests
            name = f"{formats.count(len(others))} others" if all_told else "All others"
            rows.append(self._sum(name, rest, None))
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
    if other is None or column.order == "n":
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
