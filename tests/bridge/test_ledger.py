"""The Ledger port on a real PostgreSQL: hold, settle, release, refuse, repeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from controlplane.billing.models import UNLIMITED_NANO
from controlplane.bridge.holds import BATCH_MAX
from controlplane.bridge.ledger import PostgresLedger
from controlplane.gateway.nodes.checks import CONTEXT_WINDOW_MAX
from controlplane.gateway.ports import BudgetExceeded, LedgerAway
from controlplane.kernel.ids import new_request_id
from controlplane.kernel.price import RATE_PICO_MAX, Price, TokenCounts, charge_nano, hold_nano
from inference.contract.frames import CHOICES_MAX, Report, Timing, Usage
from tests.support.money import (
    ALICE_KEY,
    BOB_KEY,
    ORG_A,
    PROJECT_A,
    add_budget,
    budget_row,
    dsn,
    eventually,
    lines,
    make_hold,
    rows,
    settlement_of,
)

TIMING = Timing(queue_us=1, prefill_us=1, decode_us=1, held_us=3)


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[PostgresLedger]:
    made = PostgresLedger(dsn())
    made.start()
    await eventually(lambda: not made.away)
    yield made
    await made.close()


def three_budgets(lim: int = 1_000) -> None:
    add_budget(ALICE_KEY, lim, scope="key")
    add_budget(PROJECT_A, lim, scope="project")
    add_budget(ORG_A, lim, scope="organization")


async def test_settling_posts_the_charge_and_returns_the_rest(ledger: PostgresLedger) -> None:
    three_budgets()
    hold = make_hold(100, ALICE_KEY, PROJECT_A, ORG_A)
    await ledger.hold(hold)
    assert budget_row(ORG_A) == (0, 100, 0)
    await ledger.settle(settlement_of(hold, 30))
    for budget in (ALICE_KEY, PROJECT_A, ORG_A):
        assert budget_row(budget) == (30, 0, 0)
    assert lines(hold.request) == [(0, "hold", 100), (1, "settle", 30)]
    assert rows("SELECT count(*) FROM open_holds") == [(0,)]


async def test_releasing_gives_everything_back(ledger: PostgresLedger) -> None:
    three_budgets()
    hold = make_hold(100, ALICE_KEY, ORG_A)
    await ledger.hold(hold)
    await ledger.settle(settlement_of(hold, 0))
    assert budget_row(ALICE_KEY) == (0, 0, 0)
    assert lines(hold.request) == [(0, "hold", 100), (1, "release", 100)]


@pytest.mark.parametrize("others_open", [0, 1])
async def test_a_settlement_is_on_disk_when_it_is_answered(
    ledger: PostgresLedger, others_open: int
) -> None:
    """Alone it waits for the disk itself; beside others a flush follows it."""
    three_budgets()
    others = [make_hold(1, ORG_A) for _ in range(others_open)]
    for other in others:
        await ledger.hold(other)
    hold = make_hold(100, ORG_A)
    await ledger.hold(hold)
    ((before,),) = rows("SELECT pg_current_wal_insert_lsn()::text")
    await ledger.settle(settlement_of(hold, 30))
    assert rows(f"SELECT pg_current_wal_flush_lsn() > '{before}'") == [(True,)]
    for other in others:
        await ledger.settle(settlement_of(other, 0))


async def test_a_hold_is_given_back_without_waiting(ledger: PostgresLedger) -> None:
    three_budgets()
    hold, free = make_hold(100, ORG_A), make_hold(0, ORG_A)
    await ledger.hold(hold)
    await ledger.hold(free)
    ledger.release(hold)
    ledger.release(free)
    await eventually(lambda: ledger.settlements_pending == 0)
    assert lines(hold.request) == [(0, "hold", 100), (1, "release", 100)]
    assert lines(free.request) == []
    assert budget_row(ORG_A) == (0, 0, 0)


@pytest.mark.parametrize(
    ("short", "scope"), [(ALICE_KEY, "key"), (PROJECT_A, "project"), (ORG_A, "organization")]
)
async def test_refusal_names_the_scope_without_room(
    ledger: PostgresLedger, short: object, scope: str
) -> None:
    for budget, name in ((ALICE_KEY, "key"), (PROJECT_A, "project"), (ORG_A, "organization")):
        add_budget(budget, 5 if budget == short else 1_000, scope=name)
    with pytest.raises(BudgetExceeded) as refused:
        await ledger.hold(make_hold(6, ALICE_KEY, PROJECT_A, ORG_A))
    assert refused.value.scope == scope
    assert rows("SELECT sum(held)::int FROM budgets") == [(0,)]
    assert rows("SELECT count(*) FROM transfers") == [(0,)]


async def test_only_those_that_fit_are_admitted_in_order(ledger: PostgresLedger) -> None:
    three_budgets(lim=1_000)
    add_budget(BOB_KEY, 10, scope="key")
    holds = [make_hold(4, BOB_KEY, ORG_A) for _ in range(4)] + [make_hold(2, BOB_KEY, ORG_A)]
    outcomes = await asyncio.gather(*map(ledger.hold, holds), return_exceptions=True)
    refused = [isinstance(outcome, BudgetExceeded) for outcome in outcomes]
    assert refused == [False, False, True, True, False]
    assert budget_row(BOB_KEY) == (0, 10, 0)
    assert budget_row(ORG_A) == (0, 10, 0)


async def test_a_budget_that_is_not_there_admits_nothing(ledger: PostgresLedger) -> None:
    with pytest.raises(LedgerAway, match="not on the ledger"):
        await ledger.hold(make_hold(1, ALICE_KEY))


async def test_a_repeated_hold_takes_room_once(ledger: PostgresLedger) -> None:
    three_budgets()
    hold = make_hold(60, ORG_A)
    await ledger.hold(hold)
    await ledger.hold(hold)
    assert budget_row(ORG_A) == (0, 60, 0)
    await ledger.settle(settlement_of(hold, 10))
    await ledger.hold(hold)
    assert budget_row(ORG_A) == (10, 0, 0)


async def test_a_repeated_settlement_changes_nothing(ledger: PostgresLedger) -> None:
    three_budgets()
    hold = make_hold(60, ORG_A)
    await ledger.hold(hold)
    same = [ledger.settle(settlement_of(hold, 10)) for _ in range(3)]
    await asyncio.gather(*same)
    await ledger.settle(settlement_of(hold, 25))
    assert budget_row(ORG_A) == (10, 0, 0)
    assert lines(hold.request) == [(0, "hold", 60), (1, "settle", 10)]


async def test_a_charge_above_the_hold_posts_an_overage(ledger: PostgresLedger) -> None:
    add_budget(ORG_A, 60, scope="organization")
    hold = make_hold(60, ORG_A)
    await ledger.hold(hold)
    await ledger.settle(settlement_of(hold, 75))
    assert lines(hold.request) == [(0, "hold", 60), (1, "settle", 60), (2, "overage", 15)]
    assert budget_row(ORG_A) == (75, 0, 15)
    with pytest.raises(BudgetExceeded):
        await ledger.hold(make_hold(1, ORG_A))


async def test_a_request_without_a_hold_is_charged_once(ledger: PostgresLedger) -> None:
    settlement = settlement_of(make_hold(0), 12)
    await asyncio.gather(ledger.settle(settlement), ledger.settle(settlement))
    assert lines(settlement.request) == [(1, "settle", 12)]


async def test_a_lost_hold_is_booked_with_its_settlement(ledger: PostgresLedger) -> None:
    add_budget(ORG_A, 50, scope="organization")
    hold = make_hold(60, ORG_A)
    await ledger.settle(settlement_of(hold, 20))
    assert lines(hold.request) == [(0, "hold", 60), (1, "settle", 20)]
    assert budget_row(ORG_A) == (20, 0, 10)


async def test_a_report_settles_an_open_hold_by_its_own_price(ledger: PostgresLedger) -> None:
    three_budgets()
    hold = make_hold(100, ALICE_KEY, ORG_A)
    await ledger.hold(hold)
    assert await ledger.settle_report(report(hold.request))
    assert lines(hold.request) == [(0, "hold", 100), (1, "settle", 50)]
    assert await ledger.settle_report(report(hold.request))
    assert budget_row(ORG_A) == (50, 0, 0)


@pytest.mark.parametrize(("told", "source"), [("", "node"), ("engine", "node"), ("estimate",) * 2])
async def test_a_report_says_whose_count_it_is(
    ledger: PostgresLedger, told: str, source: str
) -> None:
    three_budgets()
    hold = make_hold(100, ALICE_KEY, ORG_A)
    await ledger.hold(hold)
    given = report(hold.request)
    usage = msgspec.structs.replace(given.usage, source=told)
    assert await ledger.settle_report(msgspec.structs.replace(given, usage=usage))
    assert rows("SELECT source FROM transfers WHERE kind = 'settle'") == [(source,)]


@pytest.mark.parametrize("completion", [101, 2_000_000, 2**31 - 1])
async def test_a_report_over_its_hold_books_the_hold_and_is_told(
    ledger: PostgresLedger, completion: int, caplog: pytest.LogCaptureFixture
) -> None:
    three_budgets()
    hold = make_hold(100, ALICE_KEY, ORG_A)
    await ledger.hold(hold)
    assert await ledger.settle_report(report(hold.request, completion=completion))
    # 5 + 1 for the prompt leave room for 23 output tokens of 4 nano-USD.
    assert lines(hold.request) == [(0, "hold", 100), (1, "settle", 98)]
    assert budget_row(ORG_A) == (98, 0, 0)
    assert "report_over_hold" in caplog.text
    assert hold.request.hex() in caplog.text


async def test_a_late_report_over_its_hold_books_no_more_than_the_hold(
    ledger: PostgresLedger,
) -> None:
    three_budgets()
    hold = make_hold(100, ALICE_KEY, ORG_A, expires_s=0)
    await ledger.hold(hold)
    rows("SELECT ledger_expire(10)")
    assert await ledger.settle_report(report(hold.request, completion=5_000))
    assert lines(hold.request) == [(0, "hold", 100), (1, "expire", 100), (2, "late", 98)]


async def test_a_report_after_expiry_is_booked_late(ledger: PostgresLedger) -> None:
    three_budgets()
    hold = make_hold(100, ALICE_KEY, ORG_A, expires_s=0)
    await ledger.hold(hold)
    assert rows("SELECT holds, nano FROM ledger_expire(10)") == [(1, 100)]
    assert budget_row(ORG_A) == (0, 0, 0)
    for _ in range(2):
        assert await ledger.settle_report(report(hold.request))
    assert lines(hold.request) == [(0, "hold", 100), (1, "expire", 100), (2, "late", 50)]
    assert budget_row(ORG_A) == (50, 0, 0)


async def test_a_settlement_after_expiry_is_booked_late(ledger: PostgresLedger) -> None:
    three_budgets()
    hold = make_hold(100, ALICE_KEY, expires_s=0)
    await ledger.hold(hold)
    rows("SELECT ledger_expire(10)")
    await ledger.settle(settlement_of(hold, 40))
    assert lines(hold.request) == [(0, "hold", 100), (1, "expire", 100), (2, "late", 40)]


async def test_a_report_of_nothing_known_is_answered(ledger: PostgresLedger) -> None:
    assert await ledger.settle_report(report(new_request_id()))
    assert rows("SELECT count(*) FROM transfers") == [(0,)]


async def test_a_caller_that_leaves_gets_its_hold_released(ledger: PostgresLedger) -> None:
    three_budgets()
    tasks = [asyncio.ensure_future(ledger.hold(make_hold(10, ORG_A))) for _ in range(50)]
    await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # Answered after all that came before it: none of those is on its way any more.
    last = make_hold(10, ORG_A)
    await ledger.hold(last)
    await ledger.settle(settlement_of(last, 0))
    await eventually(lambda: ledger.settlements_pending == 0)
    assert rows("SELECT count(*) FROM open_holds") == [(0,)]
    assert budget_row(ORG_A) == (0, 0, 0)


async def test_a_day_without_partition_fails_clearly(ledger: PostgresLedger) -> None:
    three_budgets()
    far = bytes.fromhex("0fff") + new_request_id()[2:]
    with pytest.raises(LedgerAway, match="no partition of relation"):
        await ledger.hold(make_hold(1, ORG_A, request=far))
    await ledger.hold(make_hold(1, ORG_A))
    assert budget_row(ORG_A) == (0, 1, 0)


def report(request: bytes, *, completion: int = 11) -> Report:
    usage = Usage(prompt_tokens=15, cached_tokens=10, completion_tokens=completion)
    return Report(request=request, model="sluice-5m", usage=usage, timing=TIMING, finish="stop")


async def test_the_largest_requests_at_the_dearest_price_fit_the_ledger(
    ledger: PostgresLedger,
) -> None:
    """A batch of them beside a budget at its highest: nothing on the way is beyond a bigint."""
    dearest = Price(
        version=1, input_pico=RATE_PICO_MAX, cached_pico=RATE_PICO_MAX, output_pico=RATE_PICO_MAX
    )
    counts = TokenCounts(
        uncached=CONTEXT_WINDOW_MAX, cached=0, output=CHOICES_MAX * CONTEXT_WINDOW_MAX
    )
    amount = hold_nano(dearest, counts.uncached, counts.output)
    assert amount == charge_nano(dearest, counts)
    add_budget(ORG_A, UNLIMITED_NANO, scope="organization")
    holds = [
        msgspec.structs.replace(make_hold(amount, ORG_A), price=dearest) for _ in range(BATCH_MAX)
    ]
    await asyncio.gather(*(ledger.hold(hold) for hold in holds))
    assert budget_row(ORG_A) == (0, BATCH_MAX * amount, 0)
    await asyncio.gather(*(ledger.settle(settlement_of(hold, amount, counts)) for hold in holds))
    assert budget_row(ORG_A) == (BATCH_MAX * amount, 0, 0)
    rows("SELECT ledger_seal(clock_timestamp(), 1000, 8)")
    assert rows("SELECT sum(nano) FROM ledger_hours") == [(BATCH_MAX * amount,)]
