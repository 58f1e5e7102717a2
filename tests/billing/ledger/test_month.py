"""The seeded month is a ledger like any other: whole, sealed, and the same at every run."""

from __future__ import annotations

from collections import Counter

import pytest
from django.core.management import call_command

from tests.support.money import rows
from tests.support.month import END, START, Month, seal_month, seed_month
from tests.support.people import make_cast


@pytest.fixture
def month(database: str) -> Month:
    return seed_month(make_cast())


def test_the_month_passes_every_check_of_the_ledger(month: Month) -> None:
    seal_month()
    call_command("verify_ledger", strict=True)
    assert rows("SELECT sum(rows)::int FROM ledger_seals") == [(len(month.lines),)]


def test_the_month_is_the_same_at_every_run(month: Month) -> None:
    acme, other = month.cast.acme.id, month.cast.other.id
    assert (month.charged(acme), month.charged(other)) == (46_873_447_490, 25_098_766_184)
    assert (month.corrected(acme), month.corrected(other)) == (-6_991_766_085, -2_000_000_000)
    kinds = Counter(line.kind for line in month.lines)
    assert set(kinds) == {"hold", "settle", "overage", "late", "expire", "release"}
    outside = [line for line in month.lines if not START <= line.booked_at < END]
    assert len(month.posted(acme)) + len(month.posted(other)) < len(month.lines) - len(outside)


def test_the_database_sums_to_what_the_month_says(month: Month) -> None:
    found = rows(
        "SELECT organization, sum(amount)::bigint FROM transfers WHERE kind = ANY (%s)"
        " AND booked_at >= %s AND booked_at < %s GROUP BY organization",
        ["settle", "overage", "late"],
        START,
        END,
    )
    organizations = (month.cast.acme.id, month.cast.other.id)
    assert dict(found) == {one: month.charged(one) for one in organizations}
