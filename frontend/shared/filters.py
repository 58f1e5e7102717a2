"""Time range and filters in a page's URL: read, checked and written back. What cannot be read is
told.

A range is relative (`range=1h`) or absolute (`from=…&to=…`), in UTC.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode

from controlplane.kernel.ids import public_id, uuid_of
from controlplane.kernel.money import nano_from_usd
from controlplane.telemetry.selectors_requests import FINISHES, Ranked, RequestFilter
from controlplane.telemetry.tiers import step_floor
from frontend.shared.formats import US_PER_MS

RELATIVE: dict[str, tuple[str, timedelta]] = {
    "15m": ("15 minutes", timedelta(minutes=15)),
    "1h": ("1 hour", timedelta(hours=1)),
    "6h": ("6 hours", timedelta(hours=6)),
    "24h": ("24 hours", timedelta(hours=24)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
    "90d": ("90 days", timedelta(days=90)),
}
DEFAULT = "1h"
SPAN_MAX = timedelta(days=92)
# Of moments, so that none of them moved by a span leaves the calendar.
YEARS = range(1900, 2970)
MINUTE_S = 60
# Charts have at most about 120 points: enough for the eye, cheap to merge.
POINTS_MAX = 121
STEPS_S = (60, 300, 900, 3_600, 21_600, 86_400)
STATUSES = (
    ("", "any"),
    ("ok", "succeeded"),
    ("failed", "failed (4xx and 5xx)"),
    ("server", "server errors (5xx)"),
    ("429", "429 limited"),
    ("499", "499 client closed request"),
    ("503", "503 unavailable"),
)
RATINGS = (("", "any"), ("up", "thumbs up"), ("down", "thumbs down"))
# As they are recorded.
RATED = {"up": 1, "down": -1}
STREAMS = (("", "any"), ("yes", "streamed"), ("no", "not streamed"))
# What comes first in the list, and the column that this goes by.
SORTS = (
    ("", "newest"),
    ("slow", "slowest"),
    ("first", "slowest first token"),
    ("cost", "highest cost"),
)
RANKED: dict[str, Ranked] = {"slow": "total_us", "first": "ttft_us", "cost": "cost_nano"}
# The heads of the list that order it.
RANK_HEADS = {"Started, UTC": "", "Total": "slow", "First token": "first", "Cost": "cost"}
FOLDED = frozenset(
    ("max_ms", "min_ttft_ms", "max_ttft_ms", "min_usd", "pool", "region", "route", "error", "user")
    + ("rating",)
)
MODEL_CHARS_MAX = 100
USER_CHARS_MAX = 512
MS_MAX = 86_400_000
TOLD_CHARS_MAX = 40

MILLISECONDS = re.compile(r"[0-9]{1,8}(\.[0-9]{1,3})?")
DOLLARS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

Choices = list[tuple[str, str]]


@dataclass(frozen=True)
class TimeRange:
    """Half-open interval [start, end) and how the URL names it."""

    start: datetime
    end: datetime
    name: str

    @property
    def relative(self) -> bool:
        """Whether it ends at the present moment."""
        return self.name in RELATIVE

    @property
    def label(self) -> str:
        if self.relative:
            return f"last {RELATIVE[self.name][0]}"
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"

    @property
    def phrase(self) -> str:
        """The same as the end of a sentence."""
        return f"{'in the' if self.relative else 'from'} {self.label}"

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()

    @property
    def step_s(self) -> int:
        return _step_s(self.seconds)

    @property
    def steps(self) -> list[datetime]:
        """Beginnings of all chart points, oldest first; the first may lie before the range."""
        at, made = step_floor(self.start, self.step_s), []
        while at < self.end:
            made.append(at)
            at += timedelta(seconds=self.step_s)
        return made

    @property
    def shift(self) -> timedelta:
        """How far back the period to compare with lies: as many whole steps as this one has."""
        return timedelta(seconds=len(self.steps) * self.step_s)

    @property
    def query(self) -> dict[str, str]:
        return {"range": self.name} if self.relative else self.frozen

    @property
    def query_text(self) -> str:
        return urlencode(self.query)

    @property
    def frozen(self) -> dict[str, str]:
        """Parameters of the same interval at fixed times."""
        return {"from": _text(self.start), "to": _text(self.end)}

    @property
    def frozen_query(self) -> str:
        return urlencode(self.frozen)


def range_from(query: Mapping[str, str], now: datetime) -> tuple[TimeRange, str]:
    """Range asked for, and a sentence when the question could not be answered as put."""
    first, last = query.get("from", ""), query.get("to", "")
    if not first and not last:
        name = query.get("range", DEFAULT)
        if name in RELATIVE:
            return _relative(name, now), ""
        return _relative(DEFAULT, now), f"“{name[:40]}” is not a range; showing the last hour."
    try:
        start, end = _parse(first), _parse(last)
        if start.year not in YEARS or end.year not in YEARS:
            raise ValueError("years")
    except (ValueError, OverflowError):
        return _relative(DEFAULT, now), "“From” and “to” must be dates with times, in UTC."
    if not timedelta(0) < end - start <= SPAN_MAX:
        text = f"A range must end after it starts and span at most {SPAN_MAX.days} days."
        return _relative(DEFAULT, now), text
    return TimeRange(start, end, ""), ""


def _relative(name: str, now: datetime) -> TimeRange:
    span = RELATIVE[name][1]
    # Cut to the step below, so that charts, sums and money are all of the same time.
    return TimeRange(step_floor(now - span, _step_s(span.total_seconds())), now, name)


def _step_s(seconds: float) -> int:
    return next((step for step in STEPS_S if seconds / step <= POINTS_MAX), STEPS_S[-1])


def _parse(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _text(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True)
class Segment:
    """The part of the traffic that a page is about, as its form shows it; empty means all."""

    model: str = ""
    project: str = ""

    @property
    def given(self) -> dict[str, str]:
        return {name: value for name, value in vars(self).items() if value}

    @property
    def project_id(self) -> uuid.UUID | None:
        return uuid_of(self.project, "proj") if self.project else None

    @property
    def rest(self) -> str:
        """What a link to another range keeps, with its closing ampersand."""
        return f"{urlencode(self.given)}&" if self.given else ""

    def query(self, within: TimeRange) -> str:
        return urlencode({**within.query, **self.given})


@dataclass(frozen=True)
class Filters(Segment):
    key: str = ""
    status: str = ""
    finish: str = ""
    stream: str = ""
    min_ms: str = ""
    max_ms: str = ""
    min_ttft_ms: str = ""
    max_ttft_ms: str = ""
    min_usd: str = ""
    route: str = ""
    pool: str = ""
    region: str = ""
    error: str = ""
    user: str = ""
    rating: str = ""
    sort: str = ""

    @property
    def rarely(self) -> bool:
        """Whether one of those is set that the page keeps folded."""
        return not FOLDED.isdisjoint(self.given)

    @property
    def narrowing(self) -> dict[str, str]:
        """Those that leave requests out; the order leaves out none."""
        return {name: value for name, value in self.given.items() if name != "sort"}


def segment_from(query: Mapping[str, str]) -> tuple[Segment, str]:
    """Model and project asked for, and a sentence on what could not be read."""
    read, complaint = _read(query, ("model", "project"))
    return Segment(**read), complaint


def filters_from(query: Mapping[str, str]) -> tuple[Filters, str]:
    """Filters asked for, and a sentence on those that could not be read and are left out."""
    read, complaint = _read(query, tuple(_READERS))
    return Filters(**read), complaint


def place_from(query: Mapping[str, str]) -> tuple[dict[str, uuid.UUID], str]:
    """Where a page of the list begins (`before` or `after` a request), and the same sentence."""
    given = {name: query[name] for name in ("before", "after") if query.get(name)}
    read = {name: _id("req")(text) for name, text in given.items()}
    unread = [f"{name} “{given[name][:TOLD_CHARS_MAX]}”" for name in read if not read[name]]
    return {name: uuid_of(text, "req") for name, text in read.items() if text}, _complaint(unread)


def request_filter(filters: Filters, organization: uuid.UUID, within: TimeRange) -> RequestFilter:
    return RequestFilter(
        organization=organization,
        start=within.start,
        end=within.end,
        model=filters.model,
        project=filters.project_id,
        key=uuid_of(filters.key, "key") if filters.key else None,
        status=filters.status,
        finish=filters.finish,
        stream={"yes": True, "no": False}.get(filters.stream),
        pool=filters.pool,
        region=filters.region,
        route=filters.route,
        error_code=filters.error,
        end_user=filters.user,
        total_us_min=_us(filters.min_ms or "0"),
        total_us_max=_us(filters.max_ms) if filters.max_ms else None,
        ttft_us_min=_us(filters.min_ttft_ms or "0"),
        ttft_us_max=_us(filters.max_ttft_ms) if filters.max_ttft_ms else None,
        cost_nano_min=nano_from_usd(filters.min_usd or "0"),
        rating=RATED.get(filters.rating, 0),
    )


def choices(known: Iterable[tuple[str, str]], chosen: str) -> Choices:
    """Values and words of a list, with what the URL asks for even where the list has it no more."""
    found = list(known)
    if chosen and chosen not in dict(found):
        found.append((chosen, chosen))
    return found


def _read(query: Mapping[str, str], names: Iterable[str]) -> tuple[dict[str, str], str]:
    read, unread = {}, []
    for name in names:
        text = query.get(name, "")
        if not text:
            continue
        label, reader = _READERS[name]
        value = reader(text)
        if value:
            read[name] = value
        else:
            unread.append(f"{label} “{text[:TOLD_CHARS_MAX]}”")
    return read, _complaint(unread)


def _complaint(unread: list[str]) -> str:
    if not unread:
        return ""
    return f"Ignored because invalid: {', '.join(unread)}."


def _name(text: str) -> str:
    return text if len(text) <= MODEL_CHARS_MAX and text.isprintable() else ""


def _id(prefix: str) -> Callable[[str], str]:
    """A reader of ids in any form, which gives the public one."""

    def read(text: str) -> str:
        try:
            return public_id(prefix, uuid_of(text, prefix))
        except ValueError:
            return ""

    return read


def _milliseconds(text: str) -> str:
    return text if MILLISECONDS.fullmatch(text) and Decimal(text) <= MS_MAX else ""


def _us(milliseconds: str) -> int:
    """Exact: the text has three decimals at most."""
    return int(Decimal(milliseconds) * US_PER_MS)


def _dollars(text: str) -> str:
    return text if DOLLARS.fullmatch(text) else ""


def _one_of(known: Iterable[str]) -> Callable[[str], str]:
    values = frozenset(known)
    return lambda text: text if text in values else ""


_READERS: dict[str, tuple[str, Callable[[str], str]]] = {
    "model": ("model", _name),
    "project": ("project", _id("proj")),
    "key": ("key", _id("key")),
    "status": ("status", _one_of(value for value, _ in STATUSES)),
    "finish": ("finish", _one_of(FINISHES)),
    "stream": ("stream", _one_of(value for value, _ in STREAMS)),
    "rating": ("rating", _one_of(value for value, _ in RATINGS)),
    "min_ms": ("min. latency (ms)", _milliseconds),
    "max_ms": ("max. latency (ms)", _milliseconds),
    "min_ttft_ms": ("min. first token (ms)", _milliseconds),
    "max_ttft_ms": ("max. first token (ms)", _milliseconds),
    "min_usd": ("min. cost (USD)", _dollars),
    "route": ("rule", _name),
    "pool": ("pool", _name),
    "region": ("region", _name),
    "error": ("error code", _name),
    "user": ("end user", lambda text: text[:USER_CHARS_MAX].replace("\0", "")),
    "sort": ("order", _one_of(value for value, _ in SORTS)),
}
