"""What a page of figures is asked for by its URL: range, part of the traffic, comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from controlplane.catalog.selectors import model_list
from frontend.shared.access import Viewer
from frontend.shared.cells import PERCENT_DEFAULT, PERCENTILES, percent_from
from frontend.shared.filters import TOLD_CHARS_MAX, Segment, choices, segment_from
from frontend.shared.ranges import RELATIVE, TimeRange, range_from

PREVIOUS = "previous"


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


def asked_context(viewer: Viewer, asked: Asked, here: str) -> dict[str, Any]:
    models = [(one.name, one.name) for one in model_list()]
    return {
        "viewer": viewer,
        "here": here,
        "asked": asked,
        "within": asked.within,
        "ranges": RELATIVE,
        "models": choices(models, asked.segment.model),
        "percentiles": PERCENTILES,
    }
