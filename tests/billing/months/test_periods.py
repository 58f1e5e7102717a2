"""Months: their borders, their names, and their state by the database's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ValidationError

from controlplane.billing.months.periods import Period, PeriodState, period_of, state_of
from tests.support.money import ORG_A


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("2026-11", datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12", datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
        ("2028-02", datetime(2028, 2, 1, tzinfo=UTC), datetime(2028, 3, 1, tzinfo=UTC)),
    ],
)
def test_a_month_ends_where_the_next_begins(name: str, start: datetime, end: datetime) -> None:
    period = Period(name)
    assert (period.start, period.end) == (start, end)
    assert period_of(start) == period_of(end - timedelta(microseconds=1)) == period
    assert period_of(end) > period


@pytest.mark.parametrize(
    "name", ["2026-13", "2026-00", "2026-1", "26-01", "1969-12", "", "2026-01 "]
)
def test_other_names_are_no_months(name: str) -> None:
    with pytest.raises(ValidationError, match="month such as"):
        Period(name)


def test_a_month_runs_then_waits_to_be_closed(database: str) -> None:
    now = datetime.now(UTC)
    assert state_of(ORG_A, period_of(now)) == PeriodState.OPEN
    assert state_of(ORG_A, period_of(now - timedelta(days=40))) == PeriodState.CLOSING
