"""The time range in a page's URL: relative (`range=1h`) or absolute (`from=…&to=…`), in UTC."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from controlplane.telemetry.tiers import step_floor

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
MINUTE_S = 60
# Charts have at most about 120 points: enough for the eye, cheap to merge.
POINTS_MAX = 121
STEPS_S = (60, 300, 900, 3_600, 21_600, 86_400)


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
    except (ValueError, OverflowError):
        return _relative(DEFAULT, now), "From and to must be dates with times, in UTC."
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
