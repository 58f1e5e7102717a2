"""What Explore is asked by its URL, which is the whole view: what cannot be read is told."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from controlplane.kernel.ids import public_id, uuid_of
from controlplane.kernel.measures import PROMPT_BUCKET_LABELS
from controlplane.telemetry.exploration import MEASURES
from frontend.shared.filters import (
    TOLD_CHARS_MAX,
    YEARS,
    Filters,
    TimeRange,
    filters_from,
    range_from,
)
from frontend.shared.stages import MEASURE_WORDS

DIMENSION_WORDS = {
    "model": "Model",
    "route": "Rule",
    "pool": "Pool",
    "region": "Region",
    "organization": "Organization",
    "project": "Project",
    "key": "Key",
    "status": "Status",
    "error_code": "Error code",
    "finish": "Finish",
    "rating": "Rating",
    "prompt_bucket": "Prompt tokens",
    "template": "Template",
    "end_user": "End user",
    "label": "Label",
    "hour": "Hour of day",
    "time": "Time",
}
# Of these, staff alone look over more than one organization.
STAFF_ALONE = frozenset(("organization",))
ALL = "all"
COUNTS_ALONE = "none"
MEASURES_OFFERED = {
    **{name: MEASURE_WORDS[name] for name in MEASURES},
    COUNTS_ALONE: "Counts only",
}
COMPARED = {
    "": "nothing",
    "previous": "previous period",
    "day": "previous day",
    "week": "previous week",
}
_SHIFTS = {"day": timedelta(days=1), "week": timedelta(days=7)}
ORDERS = {
    "": "requests, or newest",
    "requests": "requests",
    "errors": "errors",
    "rate": "error rate",
    "in": "tokens in",
    "cached": "cached",
    "hits": "lowest hit rate",
    "out": "tokens out",
    "cost": "cost",
    "p50": "p50",
    "p95": "p95",
    "p99": "p99",
    "n": "n",
    "name": "name",
}
LENGTHS = {str(place): f"{words} tokens" for place, words in enumerate(PROMPT_BUCKET_LABELS)}
HOURS = re.compile(r"([01]?[0-9]|2[0-3])-([01]?[0-9]|2[0-4])")
NAME_CHARS_MAX = 200
LABEL_CHARS_MAX = 700


def _short(text: str) -> str:
    return text if len(text) <= NAME_CHARS_MAX and text.isprintable() else ""


def _label(text: str) -> str:
    name = text.partition("=")[0].strip()
    return text if name and len(text) <= LABEL_CHARS_MAX and "\0" not in text else ""


def _hours(text: str) -> str:
    found = HOURS.fullmatch(text.replace(" ", ""))
    return f"{int(found[1])}-{int(found[2])}" if found and int(found[1]) != int(found[2]) else ""


def _organization(text: str) -> str:
    try:
        return text if text == ALL else public_id("org", uuid_of(text, "org"))
    except ValueError:
        return ""


def _moment(text: str) -> str:
    try:
        found = datetime.fromisoformat(text)
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    return found.strftime("%Y-%m-%dT%H:%M:%S") if found.year in YEARS else ""


def _known(values: Mapping[str, str]) -> Callable[[str], str]:
    return lambda text: text if text in values else ""


# Parameters that only this page has: the words for them, and what reads them.
_READERS: dict[str, tuple[str, Callable[[str], str]]] = {
    "by": ("group", _known(DIMENSION_WORDS)),
    "then": ("second group", _known(DIMENSION_WORDS)),
    "measure": ("measure", _known(MEASURES_OFFERED)),
    "compare": ("comparison", _known(COMPARED)),
    "against": ("start of the other span", _moment),
    "order": ("order", _known(ORDERS)),
    "organization": ("organization", _organization),
    "length": ("prompt tokens", _known(LENGTHS)),
    "template": ("template", _short),
    "label": ("label", _label),
    "hours": ("hours of the day, such as 9-17", _hours),
}
# Those that say which requests, and that the list of requests does not know.
NARROWING = ("organization", "length", "template", "label", "hours")


@dataclass(frozen=True)
class ExploreQuestion:
    """The question as read; empty texts leave open. `complaint` tells what was left out of it."""

    within: TimeRange
    filters: Filters = field(default_factory=Filters)
    by: str = "model"
    then: str = ""
    measure: str = "total"
    compare: str = ""
    against: str = ""
    order: str = ""
    organization: str = ""
    length: str = ""
    template: str = ""
    label: str = ""
    hours: str = ""
    complaint: str = ""

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, (self.by, self.then))))

    @property
    def own(self) -> dict[str, str]:
        """Parameters of this page alone that are not as they are by themselves."""
        usual = {one.name: one.default for one in fields(self) if one.name in _READERS}
        given = {name: getattr(self, name) for name in usual}
        return {name: text for name, text in given.items() if text and text != usual[name]}

    @property
    def kept(self) -> dict[str, str]:
        """What links to another range keep."""
        return self.filters.narrowing | self.own

    @property
    def rest(self) -> str:
        return f"{urlencode(self.kept)}&" if self.kept else ""

    @property
    def query(self) -> str:
        return urlencode({**self.within.query, **self.kept})

    @property
    def unfiltered(self) -> str:
        """The same of all requests."""
        own = {name: text for name, text in self.own.items() if name not in NARROWING}
        return urlencode({**self.within.query, **own})

    @property
    def narrowed(self) -> bool:
        return bool(self.filters.narrowing) or any(getattr(self, name) for name in NARROWING)

    @property
    def rarely(self) -> bool:
        """Whether one of those is set that the page keeps folded."""
        folded = (self.length, self.template, self.label, self.hours, self.against)
        return self.filters.rarely or any((*folded, self.filters.finish, self.filters.stream))

    @property
    def listable(self) -> bool:
        """Whether the list of requests can be narrowed to the same."""
        return not any(getattr(self, name) for name in NARROWING)

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=self.within.step_s)

    @property
    def other_span(self) -> TimeRange | None:
        """The span to compare with, as long as this one."""
        start, end = self.within.start, self.within.end
        if self.against:
            start_other = datetime.fromisoformat(self.against).replace(tzinfo=UTC)
            return TimeRange(start_other, start_other + (end - start), "")
        if not self.compare:
            return None
        shift = _SHIFTS.get(self.compare, end - start)
        return TimeRange(start - shift, end - shift, "")

    def with_filter(self, **changes: str) -> "ExploreQuestion":
        """The same, narrowed; names are those of parameters."""
        own: dict[str, Any] = {name: text for name, text in changes.items() if name in _READERS}
        theirs = {name: text for name, text in changes.items() if name not in _READERS}
        return replace(self, **own, filters=replace(self.filters, **theirs))


def question_from(query: Mapping[str, str], now: datetime, *, staff: bool) -> ExploreQuestion:
    """The question in a URL; `staff` may ask about other organizations."""
    within, complaint = range_from(query, now)
    filters, unread = filters_from(query)
    complaints, read = [complaint, unread], dict[str, Any]()
    for name, (words, reader) in _READERS.items():
        text = query.get(name, "")
        value = reader(text) if text else ""
        if value and not staff and (name in STAFF_ALONE or value in STAFF_ALONE):
            value = ""
        if value:
            read[name] = value
        elif text:
            complaints.append(f"Ignored because invalid: {words} “{text[:TOLD_CHARS_MAX]}”.")
    told = " ".join(filter(None, complaints))
    return ExploreQuestion(within=within, filters=filters, complaint=told, **read)
