"""Usage and costs by buckets of time, as the query strings of OpenAI's administration API ask.

All figures are the ledger's hours. A bucket is whole: the first begins at or before `start_time`.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.http import QueryDict

from controlplane.billing.ledger.hours import Dimension, HourSum, hours
from controlplane.kernel.ids import uuid_asked

WIDTHS_S = {"1h": 3_600, "1d": 86_400}
# Per width: how many buckets a page has unless asked, and at most.
LIMITS = {"1h": (24, 168), "1d": (7, 31)}
COST_LIMITS = {"1d": (7, 180)}
VALUES_MAX = 100
UNIX_MAX = 4_102_444_800
# OpenAI's name of a group: our name of it.
GROUPS: dict[str, Dimension] = {
    "project_id": "project", "api_key_id": "key", "model": "model", "user_id": "end_user"
}  # fmt: skip
COST_GROUPS: dict[str, Dimension] = {
    "project_id": "project", "api_key_id": "key", "line_item": "model", "user_id": "end_user"
}  # fmt: skip
# A filter's parameter: which of our names it filters.
FILTERS: dict[str, Dimension] = {
    "project_ids": "project", "api_key_ids": "key", "models": "model", "user_ids": "end_user"
}  # fmt: skip
Values = tuple[object, ...]


@dataclass(frozen=True)
class UsageAsk:
    start: int
    end: int
    width_s: int
    limit: int
    group_by: tuple[str, ...] = ()
    filters: Mapping[Dimension, frozenset[object]] = field(default_factory=dict)

    @property
    def stop(self) -> int:
        """Where this page ends, in seconds of Unix time."""
        return min(self.start + self.limit * self.width_s, self.end)

    @property
    def next_page(self) -> str | None:
        """What asks for the page after this one."""
        if self.stop >= self.end:
            return None
        return "page_" + urlsafe_b64encode(str(self.stop).encode()).decode()


@dataclass
class UsageTally:
    """Sums of one group in one bucket."""

    requests: int = 0
    uncached: int = 0
    cached: int = 0
    output: int = 0
    nano: int = 0

    def add(self, more: HourSum) -> None:
        for name, value in vars(self).items():
            setattr(self, name, value + getattr(more, name))


@dataclass(frozen=True)
class UsageSums:
    """Sums of [start, end), in Unix time, by the values of what was grouped by."""

    start: int
    end: int
    results: dict[Values, UsageTally]


def usage_ask(
    query: QueryDict,
    *,
    groups: Mapping[str, Dimension],
    limits: Mapping[str, tuple[int, int]],
    now: datetime,
) -> UsageAsk:
    """A query string understood; raises ValidationError that names the parameter."""
    given = {name.removesuffix("[]"): _values(query, name) for name in query}
    known = {"start_time", "end_time", "bucket_width", "group_by", "limit", "page", *FILTERS}
    for name in given:
        if name not in known:
            raise ValidationError({name: "Unknown parameter."})
    if "start_time" not in given:
        raise ValidationError({"start_time": "Missing."})
    width = _one(given, "bucket_width", "1d")
    if width not in limits:
        raise ValidationError({"bucket_width": f"Must be one of {', '.join(limits)}."})
    width_s = WIDTHS_S[width]
    start = _whole(given, "start_time", 0, UNIX_MAX)
    end = _whole(given, "end_time", 0, UNIX_MAX) if "end_time" in given else int(now.timestamp())
    default, most = limits[width]
    start = start // width_s * width_s
    return UsageAsk(
        start=_page(given, start, width_s),
        end=-(-end // width_s) * width_s,
        width_s=width_s,
        limit=_whole(given, "limit", 1, most) if "limit" in given else default,
        group_by=_group_by(given, groups),
        filters=_filters(given),
    )


def usage_buckets(
    *, organization: uuid.UUID, ask: UsageAsk, groups: Mapping[str, Dimension], models: ModelsSeen
) -> list[UsageSums]:
    """The page's buckets in order, empty ones as well; only requests to `models` count."""
    wanted = tuple(groups[name] for name in ask.group_by)
    found: dict[int, dict[Values, UsageTally]] = defaultdict(dict)
    if ask.start < ask.stop:
        for one in hours(
            organizations=[organization],
            start=datetime.fromtimestamp(ask.start, UTC),
            end=datetime.fromtimestamp(ask.stop, UTC),
            by=_dimensions(ask, wanted),
        ):
            passed = (getattr(one, name) in allowed for name, allowed in ask.filters.items())
            if one.model in models and all(passed):
                values = tuple(getattr(one, name) for name in wanted)
                found[_bucket_start(one)].setdefault(values, UsageTally()).add(one)
    starts = range(ask.start, ask.stop, ask.width_s)
    return [UsageSums(at, at + ask.width_s, found.get(at, {})) for at in starts]


@dataclass(frozen=True)
class ModelsSeen:
    """Which models count: those named, or all but those."""

    names: frozenset[str]
    inside: bool

    def __contains__(self, name: object) -> bool:
        return (name in self.names) is self.inside


def _dimensions(ask: UsageAsk, wanted: Iterable[Dimension]) -> tuple[Dimension, ...]:
    time: Dimension = "hour" if ask.width_s == WIDTHS_S["1h"] else "day"
    return tuple(dict.fromkeys((time, "model", *wanted, *ask.filters)))


def _bucket_start(one: HourSum) -> int:
    at = one.hour or one.day
    assert at is not None
    return int(at.timestamp())


def _values(query: QueryDict, name: str) -> list[str]:
    """All values of a parameter, repeated or with commas between."""
    found = [part for text in query.getlist(name) for part in text.split(",")]
    if len(found) > VALUES_MAX:
        raise ValidationError({name.removesuffix("[]"): f"At most {VALUES_MAX} values."})
    return found


def _one(given: Mapping[str, list[str]], name: str, default: str) -> str:
    values = given.get(name, [default])
    if len(values) != 1:
        raise ValidationError({name: "Must be given once."})
    return values[0]


def _whole(given: Mapping[str, list[str]], name: str, least: int, most: int) -> int:
    text = _one(given, name, "")
    plain = text.isascii() and text.isdigit() and len(text) <= len(str(UNIX_MAX))
    if plain and least <= int(text) <= most:
        return int(text)
    raise ValidationError({name: f"Must be a whole number from {least} to {most}."})


def _group_by(given: Mapping[str, list[str]], groups: Mapping[str, Any]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(given.get("group_by", [])))
    for name in names:
        if name not in groups:
            raise ValidationError({"group_by": f"Must be among {', '.join(groups)}, not {name!r}."})
    return names


def _filters(given: Mapping[str, list[str]]) -> dict[Dimension, frozenset[object]]:
    found: dict[Dimension, frozenset[object]] = {}
    for name, ours in FILTERS.items():
        if name in given:
            texts = given[name]
            texts_too = ours in ("model", "end_user")
            found[ours] = frozenset(texts if texts_too else (_id(name, t) for t in texts))
    return found


def _id(name: str, text: str) -> uuid.UUID:
    wrong = ValidationError({name: f"{text!r} is not a valid id."})
    return uuid_asked(text, "proj" if name == "project_ids" else "key", wrong)


def _page(given: Mapping[str, list[str]], start: int, width_s: int) -> int:
    """Where the page begins that `next_page` named; the start without one."""
    if "page" not in given:
        return start
    text = _one(given, "page", "")
    try:
        at = int(urlsafe_b64decode(text.removeprefix("page_").encode()))
    except (NotBase64, ValueError):
        at = -1
    if not start <= at <= UNIX_MAX or at % width_s:
        raise ValidationError({"page": "Must be the `next_page` of the same query."})
    return at
