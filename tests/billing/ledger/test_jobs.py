"""Expiry, seals and the comparison of counters, as jobs run them."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command

from controlplane.billing.ledger import services, tasks
from controlplane.bridge.money.ledger import PostgresLedger
from tests.support.money import ORG_A, add_budget, budget_row, lines, make_hold, rows, settlement_of
from tests.support.people import make_cast


async def _holds(ledger: PostgresLedger, count: int, expires_s: int) -> list[bytes]:
    holds = [make_hold(5, ORG_A, expires_s=expires_s) for _ in range(count)]
    for hold in holds:
        await ledger.hold(hold)
    return [hold.request for hold in holds]


async def test_only_holds_whose_time_is_over_expire(ledger: PostgresLedger) -> None:
    add_budget(ORG_A, 1_000, scope="organization")
    old = await _holds(ledger, 3, expires_s=0)
    young = await _holds(ledger, 2, expires_s=60)
    assert rows("SELECT holds, nano FROM ledger_expire(2)") == [(2, 10)]
    assert rows("SELECT holds, nano FROM ledger_expire(2)") == [(1, 5)]
    assert rows("SELECT holds, nano FROM ledger_expire(2)") == [(0, 0)]
    assert all(lines(request)[1] == (1, "expire", 5) for request in old)
    assert all(lines(request) == [(0, "hold", 5)] for request in young)
    assert budget_row(ORG_A) == (0, 10, 0)


@pytest.fixture
async def two_open(ledger: PostgresLedger) -> None:
    add_budget(ORG_A, 1_000, scope="organization")
    await _holds(ledger, 2, expires_s=60)


def test_reconcile_names_a_counter_that_differs(two_open: None) -> None:
    assert services.reconcile() == []
    rows("UPDATE budgets SET held = 11")
    assert services.reconcile() == [services.Difference(ORG_A, "organization", 11, 10)]
    assert tasks.reconcile() == 1


@pytest.fixture
async def ten_settled(ledger: PostgresLedger) -> None:
    add_budget(ORG_A, 1_000, scope="organization")
    for _ in range(10):
        hold = make_hold(5, ORG_A)
        await ledger.hold(hold)
        await ledger.settle(settlement_of(hold, 3))


def test_seals_cover_all_rows_once_in_bounded_ranges(ten_settled: None) -> None:
    assert services.seal_ledger() == 0, "rows of the last minute may still have company"
    now = rows("SELECT clock_timestamp()")[0][0]
    total = 0
    while sealed := rows("SELECT ledger_seal(%s, 6, 8)", now)[0][0]:
        assert sealed <= 6
        total += sealed
    assert total == 20
    assert rows("SELECT sum(rows)::int, count(DISTINCT previous) FROM ledger_seals") == [(20, 4)]


def test_partitions_are_kept_a_week_ahead(database: str) -> None:
    later = datetime.now(UTC) + timedelta(days=3)
    assert services.make_partitions(later) == 3
    assert services.make_partitions(later) == 0


def test_start_up_makes_the_days_of_ledger_and_telemetry(database: str) -> None:
    today = datetime.now(UTC)
    name = (today + timedelta(days=7)).strftime("transfers_%Y%m%d")
    rows(f"DROP TABLE {name}")
    out = io.StringIO()
    call_command("make_partitions", stdout=out)
    assert out.getvalue() == "made 1 partitions\n"
    assert rows("SELECT to_regclass(%s) IS NOT NULL", name) == [(True,)]


def test_what_was_done_lately_is_compared_once(ten_settled: None) -> None:
    rows("SELECT ledger_seal(clock_timestamp(), 1000, 8)")
    assert tasks.reconcile_lately() == 0
    assert rows("SELECT count(*) FROM reconciliations") == [(0,)], "the hour is not over"
    cast = make_cast()
    rows(
        "UPDATE ledger_hours SET organization = %s, hour = hour - interval '3 hours'", cast.acme.id
    )
    # Hours without lines: the whole of them is unaccounted for.
    assert tasks.reconcile_lately() > 0
    assert tasks.reconcile_lately() == 0
    assert rows("SELECT count(*) FROM reconciliations") == [(1,)]
