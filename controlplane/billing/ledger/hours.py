"""What was charged, summed from the ledger by hours of booking: the one source of money over time.

Covers what is sealed; `sealed_through` says how far that is.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.db.models import DateTimeField, DecimalField, Expression, F, Max, Sum
from django.db.models.functions import Cast, TruncDay

from controlplane.billing.ledger.models import LedgerHour, LedgerSeal
from controlplane.core.permissions import organization_scope

Dimension = Literal[
    "hour", "day", "organization", "project", "key", "model", "price_version", "end_user", "labels"
]
_WHOLE = DecimalField(max_digits=38, decimal_places=0)
_RATES = {"uncached": "input_pico", "cached": "cached_pico", "output": "output_pico"}
_COUNTS = ("requests", "uncached", "cached", "output", "nano")
# With hours or days asked for, they are read in turns, so that no reading grows with the range.
_STEP = timedelta(days=1)
# A day alone is one row, however many there are of others.
_STEP_OF_DAYS = timedelta(days=31)


@dataclass(frozen=True, kw_only=True)
class HourSum:
    """Charges of one group; what was not grouped by is None.

    `hour` and `day` are the group's beginning in UTC. The rates come with `price_version`. The
    `…_cost_pico` are tokens times rate before any rounding; `nano` is what was booked.
    """

    requests: int
    uncached: int
    cached: int
    output: int
    nano: int
    uncached_cost_pico: int
    cached_cost_pico: int
    output_cost_pico: int
    hour: datetime | None = None
    day: datetime | None = None
    organization: uuid.UUID | None = None
    project: uuid.UUID | None = None
    key: uuid.UUID | None = None
    model: str | None = None
    price_version: int | None = None
    input_pico: int | None = None
    cached_pico: int | None = None
    output_pico: int | None = None
    end_user: str | None = None
    labels: str | None = None

    @property
    def cost_pico(self) -> int:
        """The exact cost; `nano` differs from it by the rounding of each line."""
        return self.uncached_cost_pico + self.cached_cost_pico + self.output_cost_pico


def hours(
    *,
    organizations: Iterable[uuid.UUID],
    start: datetime,
    end: datetime,
    by: tuple[Dimension, ...],
    most: int | None = None,
) -> Iterator[HourSum]:
    """Sums over [start, end), in the order of `by`; time first where it is asked for. With `most`
    only so many, the dearest first; then there is no time among them.

    Raises ValueError unless both are aware and on whole hours of UTC.
    """
    for moment in (start, end):
        if moment.tzinfo is None or moment.timestamp() % 3600:
            raise ValueError(f"{moment} is not a whole hour")
    wanted = list(organizations)
    names: list[str] = sorted(by, key=lambda name: name not in ("hour", "day"))
    for opens, closes in _windows(start, end, names):
        with organization_scope(wanted):
            found = list(_grouped(wanted, opens, closes, names, most))
        for row in found:
            yield HourSum(**{name: _plain(value) for name, value in row.items()})


def sealed_through() -> datetime | None:
    """The end of the last seal: every line booked before it is in the hours. None before any."""
    found: datetime | None = LedgerSeal.objects.aggregate(last=Max("to_at"))["last"]
    return found


def _windows(
    start: datetime, end: datetime, names: list[str]
) -> Iterator[tuple[datetime, datetime]]:
    if names[:1] not in (["hour"], ["day"]):
        if start < end:
            yield start, end
        return
    opens, step = start, _STEP_OF_DAYS if names == ["day"] else _STEP
    while opens < end:
        midnight = opens.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + step
        closes = min(midnight, end)
        yield opens, closes
        opens = closes


def _grouped(
    organizations: list[uuid.UUID],
    opens: datetime,
    closes: datetime,
    names: list[str],
    most: int | None,
) -> Iterable[dict[str, Any]]:
    rows = LedgerHour.objects.filter(
        organization__in=organizations, hour__gte=opens, hour__lt=closes
    )
    columns = list(names)
    if "price_version" in names:
        columns += list(_RATES.values())
    # An alias that is no column's, since the sums below are of the columns.
    sums: dict[str, Expression] = {
        f"{count}_cost_pico": Sum(Cast(F(count), _WHOLE) * F(rate), output_field=_WHOLE)
        for count, rate in _RATES.items()
    }
    sums |= {f"all_{name}": Sum(name) for name in _COUNTS}
    if "day" in names:
        rows = rows.annotate(day=TruncDay("hour", tzinfo=UTC, output_field=DateTimeField()))
    if not columns:
        one = rows.aggregate(**sums)
        return [] if one["all_nano"] is None else [_unprefixed(one)]
    grouped = rows.values(*columns).annotate(**sums)
    order = columns if most is None else ["-all_nano", *columns]
    return [_unprefixed(row) for row in grouped.order_by(*order)[:most]]


def _unprefixed(row: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("all_"): value for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Decimals without decimals are integers."""
    return int(value) if hasattr(value, "as_tuple") else value
