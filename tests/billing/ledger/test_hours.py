"""Hours of charges: each sealed line once, in the hour of its booking, grouped as asked."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from controlplane.billing.ledger.hours import Dimension, HourSum, hours, sealed_through
from controlplane.billing.ledger.services import seal_ledger
from tests.support.money import ORG_A, rows, superuser_dsn
from tests.support.month import END, MICROSECOND, START, Line, Month, seal_month, seed_month
from tests.support.people import make_cast

HOUR = timedelta(hours=1)


@pytest.fixture
def month(database: str) -> Month:
    seeded = seed_month(make_cast())
    seal_month()
    return seeded


def _october(month: Month, *by: Dimension) -> list[HourSum]:
    acme = month.cast.acme.id
    return list(hours(organizations=[acme], start=START, end=END, by=by))


def test_a_month_is_charged_to_the_nano_whatever_it_is_grouped_by(month: Month) -> None:
    charged = month.charged(month.cast.acme.id)
    dimensions: tuple[Dimension, ...] = ("hour", "day", "project", "key", "model", "price_version")
    for by in ((), *((one,) for one in dimensions), dimensions):
        assert sum(one.nano for one in _october(month, *by)) == charged


def test_every_group_has_its_own_lines(month: Month) -> None:
    acme = month.cast.acme.id
    found = {
        (one.day, one.key, one.model): one.nano for one in _october(month, "model", "day", "key")
    }
    assert found == month.sums(
        acme,
        lambda line: (
            line.booked_at.replace(hour=0, minute=0, second=0, microsecond=0),
            line.key,
            line.model,
        ),
    )
    in_order = [one.day for one in _october(month, "model", "day")]
    assert in_order == sorted(in_order, key=lambda day: day or START)


def _midnight(line: Line) -> datetime:
    return line.booked_at.replace(hour=0, minute=0, second=0, microsecond=0)


def test_tokens_times_rates_are_the_cost_but_for_rounding(month: Month) -> None:
    for one in _october(month, "hour", "price_version", "model"):
        assert one.uncached_cost_pico == one.uncached * (one.input_pico or 0)
        assert one.cached_cost_pico == one.cached * (one.cached_pico or 0)
        assert one.output_cost_pico == one.output * (one.output_pico or 0)
    posted = month.posted(month.cast.acme.id)
    counts = Counter[str]()
    for line in posted:
        counts["uncached"] += line.counts.uncached
        counts["requests"] += line.kind != "overage"
    (whole,) = _october(month)
    assert (whole.uncached, whole.requests) == (counts["uncached"], counts["requests"])
    assert abs(whole.cost_pico - 1_000 * whole.nano) <= 500 * len(posted)


def test_a_month_ends_with_its_last_microsecond(month: Month) -> None:
    acme = month.cast.acme.id
    last = list(hours(organizations=[acme], start=END - HOUR, end=END + HOUR, by=("hour",)))
    assert [one.hour for one in last] == [END - HOUR, END]
    assert last[1].nano == sum(
        line.amount
        for line in month.lines
        if line.posts and line.organization == acme and line.booked_at == END
    )
    assert END - MICROSECOND in {line.booked_at for line in month.posted(acme)}


def test_strangers_sums_are_not_in_it(month: Month) -> None:
    both = [month.cast.acme.id, month.cast.other.id]
    found = {
        one.organization: one.nano
        for one in hours(organizations=both, start=START, end=END, by=("organization",))
    }
    assert found == {organization: month.charged(organization) for organization in both}


def test_what_is_not_sealed_is_not_told_yet(database: str) -> None:
    assert sealed_through() is None
    month = seed_month(make_cast())
    assert _october(month) == []
    seal_ledger(START + timedelta(days=3))
    assert sealed_through() == START + timedelta(days=3)
    assert rows("SELECT max(hour) < %s FROM ledger_hours", START + timedelta(days=3)) == [(True,)]


@pytest.mark.parametrize("start", [datetime(2025, 10, 1, 0, 30, tzinfo=UTC), datetime(2025, 10, 1)])
def test_only_whole_hours_can_be_asked_for(database: str, start: datetime) -> None:
    with pytest.raises(ValueError, match="whole hour"):
        list(hours(organizations=[], start=start, end=END, by=()))


_MANY = """
    INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project, key,
                           model, price_version, input_pico, cached_pico, output_pico, uncached,
                           budgets, others)
    SELECT overlay(request_floor(now())::text PLACING lpad(n::text, 12, '0') FROM 25)::uuid,
           slot, CASE slot WHEN 0 THEN 'hold' ELSE 'settle' END, 'receivable:' || %(org)s,
           'revenue:m', 2, %(org)s::uuid, %(org)s::uuid, %(org)s::uuid, 'm', 1, 2000, 0, 0, 1, '{}',
           CASE slot WHEN 0 THEN jsonb_build_object('', jsonb_build_object(
               'user', 'user ' || n, 'labels', '{}'::jsonb)) END
    FROM generate_series(%(first)s::int, %(last)s::int) AS n, (VALUES (0), (1)) AS s(slot)
"""


def test_end_users_beyond_the_bound_are_summed_in_one_row(database: str) -> None:
    bound, beyond = 10_000, 5

    def book(first: int, last: int) -> None:
        values = {"org": ORG_A, "first": first, "last": last}
        with psycopg.connect(superuser_dsn(), autocommit=True) as connection:
            connection.execute(_MANY.encode(), values)
        while seal_ledger(datetime.now(UTC)):
            pass

    book(1, 10)
    book(11, bound + beyond)
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    end = today + 24 * HOUR
    by: tuple[Dimension, ...] = ("end_user",)
    sums = hours(organizations=[ORG_A], start=today, end=end, by=by)
    found = {one.end_user: one.nano for one in sums}
    assert len(found) == bound + 1
    assert found["(other)"] == 2 * beyond
    assert found["user 7"] == 2
    assert sum(found.values()) == 2 * (bound + beyond)
