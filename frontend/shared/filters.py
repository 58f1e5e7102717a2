"""Filters in a page's URL: read, checked and written back. What cannot be read is told."""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlencode

from controlplane.kernel.ids import public_id, uuid_of
from controlplane.kernel.money import nano_from_usd
from controlplane.telemetry.selectors_requests import FINISHES, Ranked, RequestFilter
from frontend.shared.formats import US_PER_MS
from frontend.shared.ranges import TimeRange

STATUSES = (
    ("", "any"),
    ("ok", "succeeded"),
    ("failed", "failed (4xx and 5xx)"),
    ("server", "server errors (5xx)"),
    ("429", "429 limited"),
    ("499", "499 client closed request"),
    ("503", "503 unavailable"),
)
STREAMS = (("", "any"), ("yes", "streamed"), ("no", "not streamed"))
# What comes first in the list, and the column that this goes by.
SORTS = (
    ("", "newest"),
    ("slow", "slowest"),
    ("first", "slowest first token"),
    ("cost", "highest cost"),
)
RANKED: dict[str, Ranked] = {"slow": "total_us", "first": "ttft_us", "cost": "cost_nano"}
FOLDED = frozenset(
    ("max_ms", "min_ttft_ms", "max_ttft_ms", "min_usd", "pool", "region", "route", "error")
)
MODEL_CHARS_MAX = 100
MS_MAX = 86_400_000
TOLD_CHARS_MAX = 40

MILLISECONDS = re.compile(r"[0-9]{1,8}(\.[0-9]{1,3})?")
DOLLARS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

Choices = list[tuple[str, str]]


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
        total_us_min=_us(filters.min_ms or "0"),
        total_us_max=_us(filters.max_ms) if filters.max_ms else None,
        ttft_us_min=_us(filters.min_ttft_ms or "0"),
        ttft_us_max=_us(filters.max_ttft_ms) if filters.max_ttft_ms else None,
        cost_nano_min=nano_from_usd(filters.min_usd or "0"),
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
    "min_ms": ("min. latency (ms)", _milliseconds),
    "max_ms": ("max. latency (ms)", _milliseconds),
    "min_ttft_ms": ("min. first token (ms)", _milliseconds),
    "max_ttft_ms": ("max. first token (ms)", _milliseconds),
    "min_usd": ("min. cost (USD)", _dollars),
    "route": ("rule", _name),
    "pool": ("pool", _name),
    "region": ("region", _name),
    "error": ("error code", _name),
    "sort": ("order", _one_of(value for value, _ in SORTS)),
}
