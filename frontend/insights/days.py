"""What the pages of Insights are asked for by their URL: whole days, and the days just before."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from controlplane.insights.hygiene import DAYS_DEFAULT
from frontend.shared.asked import PREVIOUS
from frontend.shared.filters import TOLD_CHARS_MAX

DAYS = (1, DAYS_DEFAULT, 30, 90)
HUNDRED = 100.0


@dataclass(frozen=True)
class DaysAsked:
    """So many days up to `end`, the end of the present hour; `compare` with as many before."""

    days: int
    compare: bool
    complaint: str
    end: datetime

    @property
    def start(self) -> datetime:
        return self.end - timedelta(days=self.days)

    @property
    def before(self) -> datetime:
        """When those to compare with begin; they end where these begin."""
        return self.start - timedelta(days=self.days)

    @property
    def rest(self) -> str:
        """What links to other days keep, with its ampersand."""
        return f"&compare={PREVIOUS}" if self.compare else ""

    @property
    def query(self) -> str:
        return urlencode({"days": self.days}) + self.rest


def days_from(query: Mapping[str, str]) -> tuple[int, str]:
    """How many days, and a sentence where the question could not be answered as put."""
    text = query.get("days", str(DAYS_DEFAULT))
    if text.isascii() and text.isdecimal() and int(text[:4]) in DAYS:
        return int(text[:4]), ""
    choices = ", ".join(map(str, DAYS))
    return DAYS_DEFAULT, f"Days are {choices}; showing {DAYS_DEFAULT}."


def days_asked(query: Mapping[str, str], now: datetime) -> DaysAsked:
    """The question in a URL; what cannot be read is left out and told in `complaint`."""
    days, complaint = days_from(query)
    compare = query.get("compare", "")
    if compare not in ("", PREVIOUS):
        told = f"Cannot compare to “{compare[:TOLD_CHARS_MAX]}”."
        complaint = " ".join(filter(None, (complaint, told)))
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return DaysAsked(days, compare == PREVIOUS, complaint, hour + timedelta(hours=1))


def change(now: float, before: float) -> str:
    """How much more or less, in brackets; nothing where there was none to begin with."""
    return f" ({HUNDRED * (now - before) / before:+.0f} %)" if before else ""
