"""What nodes cost: the hours that gateways saw them, at the price their pool had then."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime

from django.db.models import Count, DateField, DecimalField, F, Sum
from django.db.models.functions import Cast, TruncDate

from controlplane.fleet.models import NodeHour

# micro-USD an hour times milliseconds, in nano-USD: 1,000 nano a micro, 3,600,000 ms an hour.
_PER_NANO = 3_600
_WHOLE = DecimalField(max_digits=38, decimal_places=0)


@dataclass(frozen=True, kw_only=True)
class PoolDay:
    """A pool on one day of UTC: `busy_nano` of `cost_nano` is time with requests in progress.

    `nodes` were there at some time; `card_ms` is time times cards.
    """

    day: date
    pool: str
    nodes: int
    up_ms: int
    busy_ms: int
    card_ms: int
    cost_nano: int
    busy_nano: int

    @property
    def idle_nano(self) -> int:
        return self.cost_nano - self.busy_nano


def pool_days(*, start: datetime, end: datetime) -> Iterator[PoolDay]:
    """By day and pool, of [start, end), both on whole hours; each amount is rounded once, half up.

    Times are known to half a minute for each time that a node came or went.
    """
    rows = NodeHour.objects.filter(hour__gte=start, hour__lt=end).annotate(
        day=TruncDate("hour", tzinfo=UTC, output_field=DateField())
    )
    cards = Cast(F("cards_per_node"), _WHOLE)
    price = cards * F("card_hour_micro")
    sums = rows.values("day", "pool").annotate(
        nodes=Count("node", distinct=True),
        all_up=Sum("up_ms"),
        all_busy=Sum("busy_ms"),
        all_cards=Sum(cards * F("up_ms"), output_field=_WHOLE),
        all_cost=Sum(price * F("up_ms"), output_field=_WHOLE),
        all_busy_cost=Sum(price * F("busy_ms"), output_field=_WHOLE),
    )
    for row in sums.order_by("day", "pool"):
        yield PoolDay(
            day=row["day"],
            pool=row["pool"],
            nodes=row["nodes"],
            up_ms=int(row["all_up"]),
            busy_ms=int(row["all_busy"]),
            card_ms=int(row["all_cards"]),
            cost_nano=_nano(row["all_cost"]),
            busy_nano=_nano(row["all_busy_cost"]),
        )


def _nano(micro_ms: object) -> int:
    return (2 * int(str(micro_ms)) + _PER_NANO) // (2 * _PER_NANO)
