"""PostgreSQL dies under load: nothing acknowledged is lost or booked twice, and nobody restarts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable

import pytest

from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.ports import Hold, LedgerAway
from inference.contract.frames import Report, Timing, Usage
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
from tests.support.servers import Servers
from tests.support.waiting import until

CLIENTS = 20
SETTLE = "ledger_settle, ledger_settle_exact"
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE usename = 'sluice_gateway'"


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[PostgresLedger]:
    for budget, scope in ((ALICE_KEY, "key"), (PROJECT_A, "project"), (ORG_A, "organization")):
        add_budget(budget, 10**12, scope=scope)
    made = PostgresLedger(dsn())
    made.start()
    await until(lambda: not made.away)
    yield made
    await made.close()


class Load:
    """Clients that hold, work and settle until told to stop; keeps what was acknowledged."""

    def __init__(self, ledger: PostgresLedger) -> None:
        self._ledger = ledger
        self._stopping = False
        self.acknowledged: dict[bytes, int] = {}
        self.unanswered: dict[bytes, int] = {}
        self._tasks = [asyncio.ensure_future(self._client()) for _ in range(CLIENTS)]

    async def _client(self) -> None:
        while not self._stopping:
            hold = make_hold(100, ALICE_KEY, PROJECT_A, ORG_A)
            try:
                await self._ledger.hold(hold)
            except LedgerAway:
                await asyncio.sleep(0.01)
                continue
            await asyncio.sleep(random.uniform(0.0, 0.02))
            amount = random.randint(1, 120)
            try:
                await self._ledger.settle(settlement_of(hold, amount))
                self.acknowledged[hold.request] = amount
            except LedgerAway:
                self.unanswered[hold.request] = amount

    async def stop(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def until(self, more: int) -> None:
        """Returns after so many further acknowledgements."""
        goal = len(self.acknowledged) + more
        await until(lambda: len(self.acknowledged) >= goal, within_s=30.0)


def check_books(load: Load) -> None:
    """Everything that was ever promised is there, once."""
    booked = {
        request.bytes: nano
        for request, nano in rows(
            "SELECT request, sum(amount)::bigint FROM transfers"
            " WHERE kind IN ('settle', 'overage') GROUP BY request"
        )
    }
    assert booked == {**load.acknowledged, **load.unanswered}
    for budget in (ALICE_KEY, PROJECT_A, ORG_A):
        assert budget_row(budget)[:2] == (sum(booked.values()), 0)
    assert rows("SELECT count(*) FROM open_holds") == [(0,)]


def kill_a_backend() -> None:
    os.kill(random.choice(rows(BACKENDS))[0], signal.SIGKILL)


def terminate_backends() -> None:
    rows(f"SELECT pg_terminate_backend(pid) FROM ({BACKENDS}) AS b")


@pytest.mark.parametrize("fault", [kill_a_backend, terminate_backends])
async def test_backends_die_under_load(ledger: PostgresLedger, fault: Callable[[], None]) -> None:
    load = Load(ledger)
    for _ in range(3):
        await load.until(50)
        fault()
        await until(lambda: not ledger.away)
    await load.until(50)
    await load.stop()
    check_books(load)


async def test_the_server_is_killed_and_started_under_load(
    ledger: PostgresLedger, servers: Servers
) -> None:
    load = Load(ledger)
    await load.until(50)
    servers.postgres.kill()
    await until(lambda: ledger.away)
    with pytest.raises(LedgerAway, match="does not answer"):
        await ledger.hold(make_hold(1, ORG_A))
    await asyncio.to_thread(servers.postgres.start)
    await load.until(50)
    await load.stop()
    check_books(load)


async def test_a_settlement_outlives_its_waiter(ledger: PostgresLedger, servers: Servers) -> None:
    ledger.settle_s = 0.2
    hold = make_hold(100, ORG_A)
    await ledger.hold(hold)
    servers.postgres.kill()
    with pytest.raises(LedgerAway, match="not durable"):
        await ledger.settle(settlement_of(hold, 60))
    assert ledger.settlements_pending == 1
    await asyncio.to_thread(servers.postgres.start)
    await until(lambda: ledger.settlements_pending == 0)
    assert lines(hold.request) == [(0, "hold", 100), (1, "settle", 60)]
    assert budget_row(ORG_A) == (60, 0, 0)


@pytest.mark.parametrize("early", [True, False])
async def test_a_report_never_overtakes_its_gateway_s_settlement(
    ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """Of a job that was cancelled in its prefill: by the report alone it would be free."""
    hold = make_hold(100, ORG_A)
    await ledger.hold(hold)
    rows(f"REVOKE EXECUTE ON FUNCTION {SETTLE} FROM sluice_gateway")
    try:
        with monkeypatch.context() as patch, pytest.raises(LedgerAway, match="not durable"):
            patch.setattr(ledger, "settle_s", 0.2)
            await ledger.settle(settlement_of(hold, 60))
        if early:
            assert not await ledger.settle_report(cancelled(hold))
            assert ledger.settlements_pending == 1
    finally:
        rows(f"GRANT EXECUTE ON FUNCTION {SETTLE} TO sluice_gateway")
    await until(lambda: ledger.settlements_pending == 0)
    assert await ledger.settle_report(cancelled(hold))
    assert lines(hold.request) == [(0, "hold", 100), (1, "settle", 60)]


def cancelled(hold: Hold) -> Report:
    """What its node tells of a job that was cancelled while its prompt was computed."""
    return Report(
        request=hold.request,
        model=hold.model,
        usage=Usage(prompt_tokens=6, cached_tokens=0, completion_tokens=0),
        timing=Timing(queue_us=1, prefill_us=1, decode_us=0, held_us=2),
        finish="cancelled",
        ticket=b"",
    )


async def test_open_holds_are_replayed_before_new_ones(ledger: PostgresLedger) -> None:
    """As after a crash that lost asynchronous commits: the rows are gone, the promise is not."""
    hold = make_hold(100, ORG_A)
    await ledger.hold(hold)
    rows("ALTER TABLE transfers DISABLE TRIGGER USER")
    name = rows("SELECT tableoid::regclass::text FROM transfers")[0][0]
    rows(f"ALTER TABLE {name} DISABLE TRIGGER USER")
    rows(f"DELETE FROM {name}")
    rows("DELETE FROM open_holds")
    rows("UPDATE budgets SET held = 0, lim = 50")
    terminate_backends()
    await until(lambda: rows("SELECT count(*) FROM open_holds") == [(1,)])
    assert lines(hold.request) == [(0, "hold", 100)]
    assert budget_row(ORG_A) == (0, 100, 50)
    await ledger.settle(settlement_of(hold, 30))
    assert budget_row(ORG_A) == (30, 0, 50)


async def test_holds_wait_through_a_short_break(ledger: PostgresLedger) -> None:
    terminate_backends()
    hold = make_hold(100, ORG_A)
    await ledger.hold(hold)
    await ledger.settle(settlement_of(hold, 1))
    assert budget_row(ORG_A) == (1, 0, 0)
