"""The Ledger port on a real PostgreSQL: hold, settle, release, refuse, repeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from controlplane.billing.budgets.models import UNLIMITED_NANO
from controlplane.bridge.money.holds import BATCH_MAX
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.nodes.checks import CONTEXT_WINDOW_MAX
from controlplane.gateway.ports import LedgerAway
from controlplane.kernel.ids import new_request_id
from controlplane.kernel.price import RATE_PICO_MAX, Price, TokenCounts, charge_nano, hold_nano
from inference.contract.frames import CHOICES_MAX, Report, Timing, Usage
from tests.support.money import (
    ALICE_KEY,
    ORG_A,
    PROJECT_A,
    add_budget,
    budget_row,
    dsn,
    lines,
    make_hold,
    rows,
    settlement_of,
)
from tests.support.waiting import until

TIMING = Timing(queue_us=1, prefill_us=1, decode_us=1, held_us=3)


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[PostgresLedger]:
    made = PostgresLedger(dsn())
    made.start()
    await until(lambda: not made.away)
    yield made
    await made.close()


def three_budgets(lim: int = 1_000) -> None:
    add_budget(ALICE_KEY, lim, scope="key")
    add_budget(PROJECT_A, lim, scope="project")
    add_budget(ORG_A, lim, scope="organization")


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


async def test_a_caller_that_leaves_gets_its_hold_released(ledger: PostgresLedger) -> None:
    three_budgets()
    holds = [make_hold(10, ORG_A) for _ in range(50)]
    tasks = [asyncio.ensure_future(ledger.hold(hold)) for hold in holds]
    await asyncio.sleep(0.001)
    for task in tasks:
        task.cancel()
    for hold, end in zip(holds, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
        # On a busy machine some were there before their callers could leave.
        if end is None:
            ledger.release(hold)
    # Answered after all that came before it: none of those is on its way any more.
    last = make_hold(10, ORG_A)
    await ledger.hold(last)
    await ledger.settle(settlement_of(last, 0))
    await until(lambda: ledger.settlements_pending == 0)
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
    return Report(
        request=request, model="sluice-5m", usage=usage, timing=TIMING, finish="stop", ticket=b""
    )


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
