"""The ledger against a plain model: any order of holds, settlements, expiries and repeats.

Short by default; `LEDGER_EXAMPLES=500` looks further.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from controlplane.bridge.ledger import PostgresLedger
from controlplane.gateway.ports import BudgetExceeded, Hold
from tests.support.money import (
    ALICE_KEY,
    ORG_A,
    PROJECT_A,
    dsn,
    eventually,
    make_hold,
    settlement_of,
    superuser_dsn,
)

EXAMPLES = int(os.environ.get("LEDGER_EXAMPLES", "30"))
STEPS = 25
LIMITS = {ALICE_KEY: 100, PROJECT_A: 150, ORG_A: 200}
SCOPES = {ALICE_KEY: "key", PROJECT_A: "project", ORG_A: "organization"}
EMPTY_TABLES = ("open_holds", "budgets")


class Entry:
    """What the model knows of one request."""

    def __init__(self, hold: Hold, budgets: tuple[uuid.UUID, ...]) -> None:
        self.hold = hold
        self.budgets = budgets
        self.lines = [(0, "hold", hold.amount_nano)]

    @property
    def state(self) -> str:
        return self.lines[-1][1]


class LedgerMachine(RuleBasedStateMachine):
    """Each rule does the same to PostgreSQL and to a few dictionaries."""

    requests = Bundle("requests")
    loop: asyncio.AbstractEventLoop
    ledger: PostgresLedger
    superuser: psycopg.Connection[Any]

    def __init__(self) -> None:
        super().__init__()
        for budget, scope in SCOPES.items():
            self.sql(
                "INSERT INTO budgets (id, organization, scope, lim) VALUES (%s, %s, %s, %s)",
                budget,
                ORG_A,
                scope,
                LIMITS[budget],
            )
        self.entries: dict[bytes, Entry] = {}
        self.held = dict.fromkeys(LIMITS, 0)
        self.posted = dict.fromkeys(LIMITS, 0)

    def teardown(self) -> None:
        for table in EMPTY_TABLES:
            self.sql(f"DELETE FROM {table}")

    def sql(self, query: str, *values: object) -> list[Any]:
        """As the superuser, on one connection: a new one for every look would take longest."""
        cursor = self.superuser.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def _hold(self, hold: Hold) -> str | None:
        try:
            self.loop.run_until_complete(self.ledger.hold(hold))
        except BudgetExceeded as refused:
            return refused.scope
        return None

    @rule(
        target=requests,
        amount=st.integers(1, 80),
        budgets=st.lists(st.sampled_from(list(LIMITS)), unique=True, max_size=3),
    )
    def take(self, amount: int, budgets: list[uuid.UUID]) -> object:
        hold = make_hold(amount, *budgets)
        short = [SCOPES[b] for b in budgets if self.posted[b] + self.held[b] + amount > LIMITS[b]]
        assert self._hold(hold) == (short[0] if short else None)
        if short:
            return multiple()
        self.entries[hold.request] = Entry(hold, tuple(budgets))
        for budget in budgets:
            self.held[budget] += amount
        return hold.request

    @rule(request=requests)
    def repeat_hold(self, request: bytes) -> None:
        """An open one is admitted again; a resolved one may find no room, and changes nothing."""
        entry = self.entries[request]
        refused = self._hold(entry.hold)
        assert refused is None or entry.state != "hold"

    @rule(request=requests, amount=st.integers(0, 120))
    def settle(self, request: bytes, amount: int) -> None:
        entry = self.entries[request]
        self.loop.run_until_complete(self.ledger.settle(settlement_of(entry.hold, amount)))
        held = entry.hold.amount_nano
        if entry.state == "hold":
            entry.lines.append(
                (1, "release", held) if amount == 0 else (1, "settle", min(amount, held))
            )
            if amount > held:
                entry.lines.append((2, "overage", amount - held))
            for budget in entry.budgets:
                self.held[budget] -= held
                self.posted[budget] += amount
        elif entry.state == "expire" and amount > 0:
            entry.lines.append((2, "late", amount))
            for budget in entry.budgets:
                self.posted[budget] += amount

    @rule(request=requests)
    def expire(self, request: bytes) -> None:
        entry = self.entries[request]
        self.sql(
            "UPDATE open_holds SET expires_at = now() WHERE request = %s", uuid.UUID(bytes=request)
        )
        expired = self.sql("SELECT holds FROM ledger_expire(100)")[0][0]
        assert expired == (entry.state == "hold")
        if expired:
            entry.lines.append((1, "expire", entry.hold.amount_nano))
            for budget in entry.budgets:
                self.held[budget] -= entry.hold.amount_nano

    @invariant()
    def counters_agree(self) -> None:
        for budget in LIMITS:
            found = self.sql("SELECT posted, held FROM budgets WHERE id = %s", budget)
            assert found == [(self.posted[budget], self.held[budget])]

    @invariant()
    def lines_agree(self) -> None:
        for request, entry in list(self.entries.items())[-3:]:
            found = self.sql(
                "SELECT slot, kind, amount FROM transfers WHERE request = %s ORDER BY slot",
                uuid.UUID(bytes=request),
            )
            assert found == entry.lines


@pytest.fixture
def connected(database: str) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    ledger = PostgresLedger(dsn())
    loop.run_until_complete(_start(ledger))
    LedgerMachine.loop, LedgerMachine.ledger = loop, ledger
    with psycopg.connect(superuser_dsn(), autocommit=True) as LedgerMachine.superuser:
        yield
    loop.run_until_complete(ledger.close())
    loop.close()


async def _start(ledger: PostgresLedger) -> None:
    ledger.start()
    await eventually(lambda: not ledger.away)


def test_any_history_agrees_with_the_model(connected: None) -> None:
    run_state_machine_as_test(
        LedgerMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
