"""The Requests page's filters in its URL: read, checked and written back."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from controlplane.telemetry.selectors_requests import FINISHES, RequestFilter
from frontend.formats import US_PER_MS
from frontend.ranges import TimeRange

STATUSES = (
    ("", "any"),
    ("ok", "succeeded"),
    ("failed", "failed (4xx and 5xx)"),
    ("server", "server errors (5xx)"),
    ("429", "429 limited"),
    ("499", "499 client left"),
    ("503", "503 unavailable"),
)
STREAMS = (("", "any"), ("yes", "streamed"), ("no", "not streamed"))
MODEL_CHARS_MAX = 100
MS_MAX = 86_400_000


@dataclass(frozen=True)
class Filters:
    """Values as the form shows them; empty means open."""

    model: str = ""
    key: str = ""
    status: str = ""
    finish: str = ""
    stream: str = ""
    min_ms: str = ""

    @property
    def given(self) -> dict[str, str]:
        """Those that are set."""
        return {name: value for name, value in vars(self).items() if value}

    @property
    def rest(self) -> str:
        """What a link to another range keeps, with its closing ampersand."""
        return f"{urlencode(self.given)}&" if self.given else ""

    def query(self, within: TimeRange) -> str:
        """Query string of the list with these filters in a range."""
        return urlencode({**within.query, **self.given})


def filters_from(query: Mapping[str, str]) -> Filters:
    """Read the URL; a value that means nothing is left out rather than refused."""
    return Filters(
        model=query.get("model", "")[:MODEL_CHARS_MAX],
        key=query.get("key", "") if _uuid(query.get("key", "")) else "",
        status=_one_of(query.get("status", ""), [value for value, _ in STATUSES]),
        finish=_one_of(query.get("finish", ""), FINISHES),
        stream=_one_of(query.get("stream", ""), ("yes", "no")),
        min_ms=_milliseconds(query.get("min_ms", "")),
    )


def request_filter(filters: Filters, organization: uuid.UUID, within: TimeRange) -> RequestFilter:
    """The selector's question."""
    return RequestFilter(
        organization=organization,
        start=within.start,
        end=within.end,
        model=filters.model,
        key=_uuid(filters.key),
        status=filters.status,
        finish=filters.finish,
        stream={"yes": True, "no": False}.get(filters.stream),
        total_us_min=int(filters.min_ms or 0) * US_PER_MS,
    )


def _one_of(value: str, known: list[str] | tuple[str, ...]) -> str:
    return value if value in known else ""


def _milliseconds(text: str) -> str:
    return text if text.isascii() and text.isdecimal() and int(text) <= MS_MAX else ""


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
