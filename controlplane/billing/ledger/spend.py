"""What an organization spends: by day, project, key and model, with what was booked just now.

Sealed hours and the lines since the last seal, so that nothing waits for a seal to be seen. Charges
of requests alone: credits, payments and tax are on the ledger's own pages.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from controlplane.billing.ledger.hours import Dimension, HourSum, hours, sealed_through
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.queries import rows
from controlplane.telemetry.reading import TooMuchToRead, bounded_read
from controlplane.tenants.access import require

FRESH_MS_MAX = 1_000
# A seal in the middle of the reading makes it begin again; seals are a minute apart.
READS_MAX = 3
# What a forecast goes by: whole days before today.
RATE_DAYS = 7
TOP_MAX = 1_000
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
_ADDED = (
    *("requests", "uncached", "cached", "output", "nano"),
    *("uncached_cost_pico", "cached_cost_pico", "output_cost_pico"),
)

# Lines that no seal has summed yet.
_FRESH = """
    SELECT date_trunc('day', booked_at, 'UTC'), project, key, model,
           count(*) FILTER (WHERE kind <> 'overage'), sum(uncached), sum(cached), sum(output),
           sum(amount), sum(uncached::numeric * input_pico), sum(cached::numeric * cached_pico),
           sum(output::numeric * output_pico)
    FROM transfers
    WHERE organization = %(organization)s AND kind IN ('settle', 'overage', 'late')
      AND request >= request_floor(greatest(%(sealed)s - interval '8 days', 'epoch'))
      AND booked_at >= %(sealed)s AND booked_at >= %(start)s AND booked_at < %(end)s
    GROUP BY 1, 2, 3, 4
"""


@dataclass(frozen=True)
class Spend:
    """Charges of [start, end): `lines` by project, key and model, and nano-USD of every day.

    `days` has each day of UTC that the range touches. `sealed` tells up to where the hours go.
    """

    start: datetime
    end: datetime
    lines: list[HourSum]
    days: dict[date, int]
    sealed: datetime | None

    @property
    def nano(self) -> int:
        return sum(line.nano for line in self.lines)


def spend_read(*, actor: Actor, organization: uuid.UUID, start: datetime, end: datetime) -> Spend:
    """Charges booked in [start, end), both on whole hours; raises TooMuchToRead."""
    require(actor, Action.LEDGER_VIEW, organization)
    for _ in range(READS_MAX):
        sealed = sealed_through()
        lines = [
            *hours(
                organizations=[organization], start=start, end=end, by=("project", "key", "model")
            )
        ]
        # A stretch that does not begin at midnight has a part of one more day.
        first, last = (at.astimezone(UTC).date() for at in (start, end - HOUR))
        days = {first + number * DAY: 0 for number in range((last - first).days + 1)}
        for one in hours(organizations=[organization], start=start, end=end, by=("day",)):
            if one.day is not None:
                days[one.day.astimezone(UTC).date()] = one.nano
        fresh = _fresh(organization, sealed, start, end)
        if sealed_through() == sealed:
            break
    else:
        raise TooMuchToRead
    for one in fresh:
        if one.day is not None:
            days[one.day.astimezone(UTC).date()] += one.nano
    return Spend(start, end, _merged([*lines, *fresh]), days, sealed)


def spend_top(actor: Actor, organization: uuid.UUID, of: Spend, by: Dimension) -> Spend:
    """The same with the dearest end users or labels as `lines`, from sealed hours alone."""
    require(actor, Action.LEDGER_VIEW, organization)
    wanted = [organization]
    with bounded_read(wanted):
        lines = hours(organizations=wanted, start=of.start, end=of.end, by=(by,), most=TOP_MAX)
        return replace(of, lines=list(lines))


def spend_rates(*, actor: Actor, organization: uuid.UUID, now: datetime) -> dict[uuid.UUID, int]:
    """Nano-USD a day over the last seven, of the organization, each project and each key, by id."""
    require(actor, Action.LEDGER_VIEW, organization)
    end = hour_after(now)
    rates: dict[uuid.UUID, int] = {}
    for one in hours(
        organizations=[organization], start=end - RATE_DAYS * DAY, end=end, by=("project", "key")
    ):
        for of in (organization, one.project, one.key):
            if of is not None:
                rates[of] = rates.get(of, 0) + one.nano
    return {of: nano // RATE_DAYS for of, nano in rates.items()}


def forecast_nano(days: Mapping[date, int], *, start: date, today: date, until: date) -> int | None:
    """What [start, until) comes to, if the days to come are as the last whole ones were.

    `days` are those since `start` and of the week before today. None where no day before today has
    a charge: there is nothing to go by.
    """
    known = [days.get(today - number * DAY, 0) for number in range(1, RATE_DAYS + 1)]
    before = any(nano for day, nano in days.items() if day < today - RATE_DAYS * DAY)
    while known and not known[-1] and not before:
        # Before the first charge nothing was spent because nothing was there.
        known.pop()
    if not any(known):
        return None
    mean = sum(known) // len(known)
    so_far = sum(nano for day, nano in days.items() if start <= day < today)
    return so_far + max(days.get(today, 0), mean) + mean * ((until - today).days - 1)


def hour_after(moment: datetime) -> datetime:
    """The whole hour of UTC after a moment, or the moment where it is one."""
    floor = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return floor if floor == moment else floor + HOUR


def _merged(lines: Iterable[HourSum]) -> list[HourSum]:
    found: dict[tuple[uuid.UUID | None, uuid.UUID | None, str | None], HourSum] = {}
    for line in lines:
        group = (line.project, line.key, line.model)
        before = found.get(group)
        if before is None:
            found[group] = replace(line, day=None)
        else:
            sums = {name: getattr(before, name) + getattr(line, name) for name in _ADDED}
            found[group] = replace(before, **sums)
    return list(found.values())


def _fresh(
    organization: uuid.UUID, sealed: datetime | None, start: datetime, end: datetime
) -> list[HourSum]:
    values: dict[str, Any] = {
        "organization": organization,
        "sealed": sealed or datetime.fromtimestamp(0, UTC),
        "start": start,
        "end": end,
    }
    with bounded_read([organization], FRESH_MS_MAX):
        found = rows(_FRESH, values)
    names = ("day", "project", "key", "model", *_ADDED)
    return [
        HourSum(**dict(zip(names, (*row[:4], *map(int, row[4:])), strict=True))) for row in found
    ]
