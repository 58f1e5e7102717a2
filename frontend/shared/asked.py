"""What a page of figures is asked for by its URL: range, part of the traffic, comparison."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

from django.http import Http404, HttpResponse

from controlplane.catalog.selectors import model_list
from controlplane.kernel.ids import public_id
from controlplane.slos.marks import Mark, marks_between
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.selectors import Point, SeriesQuery, series_read
from frontend.shared.access import Viewer
from frontend.shared.filters import (
    RELATIVE,
    TOLD_CHARS_MAX,
    Segment,
    TimeRange,
    choices,
    range_from,
    segment_from,
)
from frontend.shared.formats import PERCENT_DEFAULT, PERCENTILES, percent_from
from frontend.shared.panels import panel_csv
from frontend.shared.plots.figure import Panel, Plot
from frontend.shared.plots.marks import marked

PREVIOUS = "previous"
Found = TypeVar("Found")


@dataclass(frozen=True)
class Choice:
    """One parameter of a page that takes one of a few values; the first is the default."""

    name: str
    words: str
    values: Sequence[str]


@dataclass(frozen=True)
class Asked:
    """The question as read; `chosen` has the value of each of the page's own choices."""

    within: TimeRange
    segment: Segment
    percent: int
    compare: bool
    complaint: str = ""
    chosen: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)

    @property
    def kept(self) -> dict[str, str]:
        """What links to another range keep: all that is not the default."""
        kept = dict(self.segment.given)
        if self.percent != PERCENT_DEFAULT:
            kept["percentile"] = str(self.percent)
        if self.compare:
            kept["compare"] = PREVIOUS
        return kept | {
            name: value for name, value in self.chosen.items() if value != self.defaults[name]
        }

    @property
    def rest(self) -> str:
        """`kept` as the beginning of a query string, with its closing ampersand."""
        return f"{urlencode(self.kept)}&" if self.kept else ""

    @property
    def kept_beside(self) -> dict[str, str]:
        """What the form of filters keeps beside its own fields."""
        given = self.segment.given
        return {name: value for name, value in self.kept.items() if name not in given}

    @property
    def query(self) -> str:
        return urlencode({**self.within.query, **self.kept})

    @property
    def wanted(self) -> dict[str, Any]:
        """Range, model and project, by the names that all reads have for them."""
        within, segment = self.within, self.segment
        named = {"model": segment.model, "project": segment.project_id}
        return {"start": within.start, "end": within.end, **named}


def asked_from(query: Mapping[str, str], now: datetime, choices: Sequence[Choice] = ()) -> Asked:
    """The question in a URL; what cannot be read is left out and told in `complaint`."""
    within, *complaints = range_from(query, now)
    percent, complaint = percent_from(query)
    segment, unread = segment_from(query)
    compare = query.get("compare", "")
    complaints += [complaint, unread]
    if compare not in ("", PREVIOUS):
        complaints.append(f"Cannot compare to “{compare[:TOLD_CHARS_MAX]}”.")
    chosen = {}
    for choice in choices:
        text = query.get(choice.name, "")
        chosen[choice.name] = text if text in choice.values else choice.values[0]
        if text and text not in choice.values:
            complaints.append(f"“{text[:TOLD_CHARS_MAX]}” is not a {choice.words}.")
    return Asked(
        within=within,
        segment=segment,
        percent=percent,
        compare=compare == PREVIOUS,
        complaint=" ".join(filter(None, complaints)),
        chosen=chosen,
        defaults={choice.name: choice.values[0] for choice in choices},
    )


class Drawn(Protocol):
    """What was read and is shown: charts, and whatever else has a CSV."""

    @property
    def figures(self) -> Sequence[Plot]:
        """Charts in their order."""

    @property
    def panels(self) -> Sequence[Panel]:
        """All that can be downloaded."""


def asked_context(
    viewer: Viewer, asked: Asked, here: str, found: Drawn | None, *, of_projects: bool = True
) -> dict[str, Any]:
    """What these pages share; `found` is None where there was too much to read in time."""
    models = [(one.name, one.name) for one in model_list()]
    own = viewer.projects() if of_projects else []
    projects = [(public_id("proj", one.id), one.name) for one in own]
    marks = marks_of(viewer, asked.within)
    return {
        "viewer": viewer,
        "here": here,
        "csv": f"{here}_csv",
        "asked": asked,
        "within": asked.within,
        "ranges": RELATIVE,
        "models": choices(models, asked.segment.model),
        "projects": choices(projects, asked.segment.project) if of_projects else None,
        "percentiles": PERCENTILES,
        "found": found,
        "marks": marks,
        "figures": figures_json(found, marks),
    }


def marks_of(viewer: Viewer, within: TimeRange) -> list[Mark]:
    """What was published or started in the range, as far as the viewer may know."""
    return marks_between(
        actor=viewer.user,
        organization=viewer.chosen.id if viewer.chosen else None,
        start=within.start,
        end=within.end,
    )


def figures_json(found: Drawn | None, marks: Sequence[Mark] = ()) -> dict[str, Any]:
    return {one.name: marked(one.as_json(), marks) for one in found.figures} if found else {}


def drawn_csv(found: Drawn | None, name: str) -> HttpResponse:
    """One of the panels as a file; raises Http404 where nothing was read."""
    if found is None:
        raise Http404
    return panel_csv(found.panels, name)


def in_time(read: Callable[[], Found]) -> Found | None:
    """What is read; None where that was too much."""
    try:
        return read()
    except TooMuchToRead:
        return None


def before_of(query: SeriesQuery, asked: Asked) -> dict[datetime, Point] | None:
    """The period before by the times of this one, if it is to be compared with."""
    if not asked.compare:
        return None
    shift, first = asked.within.shift, asked.within.steps[0]
    points = series_read(replace(query, start=first - shift, end=first))
    return {at + shift: point for at, point in points.items()}
