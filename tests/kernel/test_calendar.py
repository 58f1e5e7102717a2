"""Calendar periods: contiguous, by the local clock, right where the clock jumps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.calendar import PERIODS, period_around

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Havana",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "Asia/Beirut",
    "Africa/Cairo",
    "Australia/Lord_Howe",
    "Pacific/Apia",
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@given(
    period=st.sampled_from(PERIODS[1:]),
    zone=st.sampled_from(ZONES),
    moment=st.datetimes(datetime(1995, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC)),
)
def test_every_moment_lies_in_one_period_that_begins_with_a_local_day(
    period: str, zone: str, moment: datetime
) -> None:
    place = ZoneInfo(zone)
    began, ends = period_around(period, place, moment)
    assert ends is not None and began <= moment < ends
    assert period_around(period, place, began) == (began, ends)
    assert period_around(period, place, ends)[0] == ends
    last = began - timedelta(microseconds=1)
    assert period_around(period, place, last)[1] == began
    assert last.astimezone(place).date() < began.astimezone(place).date()


@pytest.mark.parametrize(
    ("zone", "moment", "began", "hours"),
    [
        ("Europe/Berlin", "2026-03-29T12:00", "2026-03-28T23:00", 23),
        ("Europe/Berlin", "2026-10-25T12:00", "2026-10-24T22:00", 25),
        # Midnight comes twice: the day begins with the first.
        ("America/Havana", "2026-11-01T12:00", "2026-11-01T04:00", 25),
        # The clock jumps over midnight: the day begins at one.
        ("Asia/Beirut", "2026-03-29T12:00", "2026-03-28T22:00", 23),
        ("Australia/Lord_Howe", "2026-04-05T00:00", "2026-04-04T13:00", 24.5),
        ("Asia/Kolkata", "2026-01-01T00:00", "2025-12-31T18:30", 24),
    ],
)
def test_days_are_as_long_as_the_clock_on_the_wall_says(
    zone: str, moment: str, began: str, hours: float
) -> None:
    start, end = period_around("day", ZoneInfo(zone), utc(moment))
    assert start == utc(began)
    assert end is not None and end - start == timedelta(hours=hours)


def test_weeks_begin_on_mondays_and_months_on_the_first() -> None:
    at = utc("2026-11-22T05:00")
    assert period_around("week", UTC, at) == (utc("2026-11-16T00:00"), utc("2026-11-23T00:00"))
    assert period_around("month", UTC, at) == (utc("2026-11-01T00:00"), utc("2026-12-01T00:00"))
    assert period_around("month", UTC, utc("2026-12-31T23:59"))[1] == utc("2027-01-01T00:00")


def test_without_a_period_nothing_ends() -> None:
    at = utc("2026-11-22T05:00")
    assert period_around("none", UTC, at) == (at, None)
    with pytest.raises(ValueError, match="year"):
        period_around("year", UTC, at)
