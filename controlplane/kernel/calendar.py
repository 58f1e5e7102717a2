"""Calendar periods in a named time zone: days, weeks from Monday, months. Pure.

A period begins at the first moment of its first local day: of a midnight that comes twice the
first, and where the clock jumps over midnight the moment after the jump.
"""

from datetime import UTC, date, datetime, time, timedelta, tzinfo

PERIODS = ("none", "day", "week", "month")


def period_around(period: str, zone: tzinfo, moment: datetime) -> tuple[datetime, datetime | None]:
    """(beginning, end) in UTC of the period in which an aware moment lies.

    One of `PERIODS`, else ValueError; `none` begins at the moment and never ends.
    """
    if period not in PERIODS:
        raise ValueError(period)
    if period == "none":
        return moment, None
    local = moment.astimezone(zone).date()
    first = _first_day(period, local)
    return day_start(first, zone), day_start(_next_first_day(period, first), zone)


def day_start(day: date, zone: tzinfo) -> datetime:
    """The first moment of a local day, in UTC."""
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _first_day(period: str, day: date) -> date:
    if period == "week":
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if period == "month" else day


def _next_first_day(period: str, first: date) -> date:
    if period == "week":
        return first + timedelta(days=7)
    if period == "month":
        return (first + timedelta(days=31)).replace(day=1)
    return first + timedelta(days=1)
