"""Counts by days: what is summed equals what was counted, and nothing goes before it is summed."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.objectives.burn import Count
from controlplane.slos import selectors, services, upkeep
from controlplane.slos.models import EVERYONE, Objective
from controlplane.slos.selectors import BurnDown
from controlplane.slos.standings import floor
from frontend.slos.objectives import month_row
from tests.support.money import rows
from tests.support.objectives import count, draft

DAYS = 75


@pytest.fixture
def objective(database: str) -> Objective:
    return services.objective_create(actor=OPERATOR, organization=EVERYONE, draft=draft())


@pytest.fixture
def now() -> datetime:
    return floor(datetime.now(UTC), 60)


def past(objective: Objective, now: datetime) -> dict[datetime, Count]:
    """Every sixth hour of `DAYS`, some of an older version; what each month counted."""
    months: dict[datetime, Count] = {}
    for age in range(6, DAYS * 24, 6):
        at = floor(now, 3_600) - timedelta(hours=age)
        good, version = 1_000 - age % 31, 1 + age // 6 % 2
        rows(
            "INSERT INTO slo_counts VALUES (%s, 3600, %s, %s, %s, %s, %s, 1000)",
            objective.id, at, version, uuid.UUID(int=0), EVERYONE, good,
        )  # fmt: skip
        begins = at.replace(day=1, hour=0)
        before = months.get(begins, Count())
        months[begins] = Count(before.good + good, before.total + 1_000)
    return months


def roll_up(now: datetime) -> None:
    """Each run is a bounded step: as many as a worker does in as many minutes."""
    for _ in range(DAYS):
        upkeep.counts_roll_up(now)


def seen(objective: Objective) -> BurnDown:
    return selectors.burn_down(actor=OPERATOR, organization=EVERYONE, objective_id=objective.id)


def sums(step_s: int) -> list[tuple[object, ...]]:
    return rows(
        "SELECT version, date_trunc('day', at AT TIME ZONE 'UTC') AS day, sum(good), sum(total)"
        " FROM slo_counts WHERE step_s = %s GROUP BY 1, 2 ORDER BY 1, 2",
        step_s,
    )


def test_days_have_what_hours_have_and_the_budget_stays_right(
    objective: Objective, now: datetime
) -> None:
    months = past(objective, now)
    whole = sums(3_600)
    before = seen(objective)
    assert before.months == []
    roll_up(now)
    assert sums(86_400) == whole
    assert upkeep.counts_forget(now) > 0
    oldest = rows("SELECT min(at) FROM slo_counts WHERE step_s = 3600")[0][0]
    assert now - timedelta(days=40) <= oldest < now - timedelta(days=39)
    assert sums(86_400) == whole
    after = seen(objective)
    assert (after.standing.period, after.hours) == (before.standing.period, before.hours)
    assert [(one.begins, one.counted) for one in after.months] == sorted(
        months.items(), reverse=True
    )
    # Again, with the hours gone: nothing is summed twice or lost.
    roll_up(now)
    assert sums(86_400) == whole


def test_the_budget_is_whole_when_counting_begins_not_when_the_period_does(
    objective: Objective,
) -> None:
    assert seen(objective).opens == objective.created_at
    count(objective, floor(datetime.now(UTC), 60), good=1, total=10)
    assert seen(objective).opens >= floor(objective.created_at, 3_600)


def test_no_hour_goes_before_its_day_is_summed(objective: Objective, now: datetime) -> None:
    past(objective, now)
    hours = rows("SELECT count(*) FROM slo_counts")
    assert upkeep.counts_forget(now) == 0
    upkeep.counts_roll_up(now)
    assert upkeep.counts_forget(now) > 0
    # Only what that one step has summed.
    newest_day = rows("SELECT max(at) FROM slo_counts WHERE step_s = 86400")[0][0]
    oldest_hour = rows("SELECT min(at) FROM slo_counts WHERE step_s = 3600")[0][0]
    assert newest_day <= oldest_hour < newest_day + timedelta(days=1)
    assert rows("SELECT count(*) FROM slo_counts WHERE step_s = 3600") < hours
    roll_up(now)
    assert seen(objective).months[-1].counted.total > 0


def test_a_minute_that_comes_late_over_midnight_is_in_its_day(objective: Objective) -> None:
    midnight = floor(datetime.now(UTC), 86_400)
    count(objective, midnight - timedelta(hours=2), good=1, total=1)
    count(objective, midnight + timedelta(minutes=1), good=1, total=1)
    upkeep.counts_roll_up(midnight + timedelta(minutes=2))
    count(objective, midnight - timedelta(minutes=1), good=1, total=2)
    upkeep.counts_roll_up(midnight + timedelta(minutes=10))
    days = rows("SELECT at, good, total FROM slo_counts WHERE step_s = 86400 ORDER BY at")
    assert days == [(midnight - timedelta(days=1), 2, 3), (midnight, 1, 1)]


@pytest.mark.parametrize(
    ("good", "words"), [(990, ("99.000 %", "ok", "kept")), (989, ("98.900 %", "warn", "missed"))]
)
def test_a_month_says_whether_the_target_was_kept(good: int, words: tuple[str, str, str]) -> None:
    month = selectors.ObjectiveMonth(datetime(2026, 3, 1, tzinfo=UTC), Count(good, 1_000))
    name, attained, _, counted, *verdict = month_row(month, 990_000)
    assert (name, counted) == ("2026-03", "1,000")
    assert (attained, *verdict) == words
