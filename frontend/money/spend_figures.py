"""The Spend page's rows and tiles from what the ledger says. Pure arithmetic."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from controlplane.billing.budgets.selectors import BudgetRow
from controlplane.billing.ledger.hours import HourSum
from controlplane.billing.ledger.spend import Spend
from controlplane.kernel.money import nano_from_pico
from frontend.shared import formats

ROWS_SHOWN = 20
HUNDRED = 100.0
DAY = timedelta(days=1)
SUMMED = ("requests", "uncached", "cached", "output", "nano")
# A limit that is further away than this says nothing of today's pace.
DAYS_TOLD_MAX = 365
BUCKETS = (
    ("uncached", "Input, not cached"),
    ("cached", "Input, from the cache"),
    ("output", "Output"),
)


@dataclass(frozen=True)
class SpendRow:
    """One project, key or model: its charges, and those of the period before up to the same time.

    `query` narrows the Requests page to it; empty where a sum of several is told.
    """

    name: str
    query: str
    requests: int
    uncached: int
    cached: int
    output: int
    nano: int
    before_nano: int
    share: float

    @property
    def change(self) -> str:
        return formats.change_words(self.nano, self.before_nano)


@dataclass(frozen=True)
class TokenRow:
    """One kind of tokens: how many, what they cost before the rounding of lines."""

    name: str
    tokens: int
    nano: int
    share: float

    @property
    def per_million_nano(self) -> int | None:
        """What a million of them cost on average over models and prices."""
        return self.nano * 1_000_000 // self.tokens if self.tokens else None


@dataclass(frozen=True)
class DayBar:
    """One day of the chart: percentages of the drawing, and its words."""

    day: date
    nano: int
    left: float
    width: float
    top: float
    height: float


@dataclass(frozen=True)
class BudgetUse:
    """A budget: what is posted and held of it, and when it would be used up at this pace."""

    row: BudgetRow
    name: str
    ahead: str
    tone: str

    @property
    def posted_width(self) -> float:
        return _width(self.row.spent, self.row.available)

    @property
    def held_width(self) -> float:
        """The same of what is held, as far as there is room in the drawing."""
        return min(_width(self.row.held, self.row.available), HUNDRED - self.posted_width)

    @property
    def used(self) -> str:
        return formats.percent(self.row.spent + self.row.held, self.row.available)


def spend_rows(
    now: Spend,
    before: Spend,
    of: Callable[[HourSum], object],
    name: Callable[[object], str],
    query: Callable[[object], str],
) -> list[SpendRow]:
    """One row for each `of`, by cost."""
    found: dict[object, list[HourSum]] = {}
    for line in now.lines:
        found.setdefault(of(line), []).append(line)
    earlier: dict[object, int] = {}
    for line in before.lines:
        earlier[of(line)] = earlier.get(of(line), 0) + line.nano
    whole = now.nano
    rows = [
        _row(lines, earlier.get(key, 0), name=name(key), query=query(key), whole=whole)
        for key, lines in found.items()
    ]
    return sorted(rows, key=lambda row: (-row.nano, row.name))


def shown_rows(rows: list[SpendRow]) -> list[SpendRow]:
    """The first of them, and the sum of the others as the last."""
    if len(rows) <= ROWS_SHOWN:
        return rows
    rest = rows[ROWS_SHOWN - 1 :]
    sums = _sums(rest, *SUMMED, "before_nano", "share")
    return [*rows[: ROWS_SHOWN - 1], SpendRow(f"{len(rest):,} others", "", **sums)]


def token_rows(lines: Iterable[HourSum]) -> list[TokenRow]:
    """The three kinds of tokens; none where nothing was charged."""
    sums = {kind: [0, 0] for kind, _ in BUCKETS}
    for line in lines:
        for kind, pair in sums.items():
            pair[0] += getattr(line, kind)
            pair[1] += getattr(line, f"{kind}_cost_pico")
    whole = sum(pico for _, pico in sums.values())
    if not whole:
        return []
    return [
        TokenRow(words, sums[kind][0], nano_from_pico(sums[kind][1]), _width(sums[kind][1], whole))
        for kind, words in BUCKETS
    ]


def day_bars(days: Mapping[date, int]) -> list[DayBar]:
    """A bar for each day, as high as its share of the dearest one."""
    most = max(days.values(), default=0)
    width = HUNDRED / max(1, len(days))
    return [
        DayBar(
            day=day,
            nano=nano,
            left=round(number * width + width * 0.08, 3),
            width=round(width * 0.84, 3),
            top=round(HUNDRED - _width(nano, most), 3),
            height=round(_width(nano, most), 3),
        )
        for number, (day, nano) in enumerate(sorted(days.items()))
    ]


def budget_uses(
    rows: Iterable[BudgetRow],
    *,
    names: Mapping[uuid.UUID, str],
    rates: Mapping[uuid.UUID, int],
    now: datetime,
) -> list[BudgetUse]:
    """Budgets with the days until nothing is left, the nearest to its limit first."""
    uses = [
        BudgetUse(row, budget_name(row, names), *_ahead(row, rates.get(row.id, 0), now))
        for row in rows
        # Nothing is spent of what each end user gets anew.
        if row.scope != "users"
    ]
    return sorted(uses, key=lambda use: -(use.posted_width + use.held_width))


def budget_name(row: BudgetRow, names: Mapping[uuid.UUID, str]) -> str:
    """What a budget is of, by the names of organizations, projects and keys."""
    name = names.get(row.project or row.id, row.id.hex)
    return f"{name}, {row.model or 'each end user'}" if row.project else name


def _ahead(row: BudgetRow, rate_nano: int, now: datetime) -> tuple[str, str]:
    """When the limit is met at a pace of so much a day, in words, and a tone."""
    if not row.room:
        return "exhausted: requests are refused", "bad"
    if not rate_nano:
        return "no recent spend", "off"
    days = row.room / rate_nano
    if row.turns_at is not None and now + min(days, DAYS_TOLD_MAX) * DAY >= row.turns_at:
        return "not before reset", "ok"
    if days > DAYS_TOLD_MAX:
        return "in over a year", "ok"
    if days < 1:
        return "within a day", "bad"
    return f"in {days:.1f} days", "warn" if row.turns_at is not None or days < 7 else "ok"


def _row(lines: list[HourSum], before_nano: int, *, name: str, query: str, whole: int) -> SpendRow:
    sums = _sums(lines, *SUMMED)
    share = _width(sums["nano"], whole)
    return SpendRow(name, query, before_nano=before_nano, share=share, **sums)


def _sums(rows: Iterable[object], *names: str) -> dict[str, Any]:
    kept = list(rows)
    return {name: sum(getattr(row, name) for row in kept) for name in names}


def _width(part: int, whole: int) -> float:
    return round(min(HUNDRED, HUNDRED * part / whole), 3) if whole else 0.0
