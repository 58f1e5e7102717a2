"""The ledger against a plain model, as a Hypothesis state machine: any order of holds, settlements,
expiries, repeats, top-ups, reversals, seals and turns of a budget. PostgreSQL is the real one.

`with connected_machine(): run_state_machine_as_test(LedgerMachine, ...)` needs a fresh database.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from django.core.exceptions import ValidationError
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule

from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.journal import journal_book
from controlplane.billing.ledger.models import EntryKind
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.core.audit.entries import OPERATOR
from controlplane.gateway.ports import BudgetExceeded, Hold, Settlement
from tests.support.money import (
    ALICE_KEY,
    ORG_A,
    PROJECT_A,
    dsn,
    make_hold,
    settlement_of,
    superuser_dsn,
)
from tests.support.waiting import until

WALLET = accounts.wallet_id(ORG_A)
LIMITS = {ALICE_KEY: 100, PROJECT_A: 150, ORG_A: 200}
SCOPES = {ALICE_KEY: "key", PROJECT_A: "project", ORG_A: "organization", WALLET: "wallet"}
FIRST_TOP_UP = 120
BUDGETS = [*LIMITS, WALLET]
EMPTY_TABLES = ("open_holds", "budget_terms", "budgets")
SCOPED = "SELECT {} FROM set_config('app.orgs', %s, true)"
MINE = "{" + str(ORG_A) + "}"


class Entry:
    """What the model knows of one request."""

    def __init__(self, hold: Hold, budgets: tuple[uuid.UUID, ...]) -> None:
        self.hold = hold
        self.budgets = budgets
        self.lines = [(0, "hold", hold.amount_nano)]
        self.reversed = 0
        # Turns of the key's budget before its charge; none while nothing is charged.
        self.charged_in: int | None = None

    @property
    def state(self) -> str:
        return self.lines[-1][1]

    @property
    def charged(self) -> int:
        return sum(nano for _, kind, nano in self.lines if kind in ("settle", "overage", "late"))


class LedgerMachine(RuleBasedStateMachine):
    """Each rule does the same to PostgreSQL and to a few dictionaries."""

    requests = Bundle("requests")
    loop: asyncio.AbstractEventLoop
    ledger: PostgresLedger
    superuser: psycopg.Connection[Any]

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[bytes, Entry] = {}
        self.held = dict.fromkeys(BUDGETS, 0)
        self.posted = dict.fromkeys(BUDGETS, 0)
        self.limits = {**LIMITS, WALLET: 0}
        # What this period began with, and what was given back in it, of the key's budget.
        self.base = self.given = 0
        self.turns = 0
        for budget, limit in LIMITS.items():
            self.scoped(
                "ledger_budget_set(%s, %s, %s, %s, 'none', 'UTC', false, '{}', now(), NULL)",
                *(budget, ORG_A, SCOPES[budget], limit),
            )
        self.top_up(FIRST_TOP_UP)

    def teardown(self) -> None:
        """Lines and entries stay, as they must; budgets begin anew."""
        for table in EMPTY_TABLES:
            self.sql(f"DELETE FROM {table}")

    def sql(self, query: str, *values: object) -> list[Any]:
        """As the superuser, on one connection: a new one for every look would take longest."""
        cursor = self.superuser.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def scoped(self, call: str, *values: object) -> Any:
        """A function of the ledger in the scope of Acme; scalar."""
        return self.sql(SCOPED.format(call), *values, MINE)[0][0]

    def _hold(self, hold: Hold) -> str | None:
        try:
            self.loop.run_until_complete(_waited(self.ledger.hold, hold))
        except BudgetExceeded as refused:
            return refused.scope
        return None

    def _room(self, budget: uuid.UUID) -> int:
        return self.limits[budget] - self.posted[budget] - self.held[budget]

    @rule(
        target=requests,
        amount=st.integers(1, 80),
        budgets=st.lists(st.sampled_from(BUDGETS), unique=True, max_size=4),
    )
    def take(self, amount: int, budgets: list[uuid.UUID]) -> object:
        """A new request."""
        hold = make_hold(amount, *budgets)
        short = [SCOPES[budget] for budget in budgets if self._room(budget) < amount]
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
        """Its charge: less than was held, more, or nothing; the first time, again, or late."""
        entry = self.entries[request]
        settlement = settlement_of(entry.hold, amount)
        self.loop.run_until_complete(_waited(self.ledger.settle, settlement))
        held = entry.hold.amount_nano
        if entry.state == "hold":
            entry.lines.append(
                (1, "release", held) if amount == 0 else (1, "settle", min(amount, held))
            )
            if amount > held:
                entry.lines.append((2, "overage", amount - held))
            entry.charged_in = self.turns
            for budget in entry.budgets:
                self.held[budget] -= held
                self.posted[budget] += amount
        elif entry.state == "expire" and amount > 0:
            entry.lines.append((2, "late", amount))
            entry.charged_in = self.turns
            for budget in entry.budgets:
                self.posted[budget] += amount

    @rule(request=requests)
    def expire(self, request: bytes) -> None:
        """Its time is over."""
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

    @rule(nano=st.integers(1, 100), repeats=st.integers(1, 2))
    def top_up(self, nano: int, repeats: int = 1) -> None:
        """Money for the wallet; a repeat of the same booking changes nothing."""
        key = uuid.uuid4().hex
        for _ in range(repeats):
            self._book(EntryKind.TOPUP, accounts.cash("test"), nano, key)
        self.limits[WALLET] += nano

    @rule(request=requests, nano=st.integers(1, 150))
    def reverse(self, request: bytes, nano: int) -> None:
        """Part of a charge goes back, never more than was charged; it makes room, but not in a
        period that began after the charge."""
        entry = self.entries[request]
        debit = accounts.revenue(entry.hold.model)
        key = uuid.uuid4().hex
        try:
            self._book(EntryKind.REVERSAL, debit, nano, key, entry)
        except ValidationError:
            assert entry.reversed + nano > entry.charged
            return
        assert entry.reversed + nano <= entry.charged
        entry.reversed += nano
        past = entry.charged_in != self.turns
        for budget in entry.budgets:
            if not (budget == ALICE_KEY and past):
                self.limits[budget] += nano
        if ALICE_KEY in entry.budgets and not past:
            self.given += nano

    @rule(allowance=st.integers(0, 200))
    def limit(self, allowance: int) -> None:
        """Another limit for the key, above or below what is spent."""
        ((period, zone, began, turns),) = self.sql(
            "SELECT period, zone, began_at, turns_at FROM budget_terms WHERE budget = %s", ALICE_KEY
        )
        self._set(allowance, period, zone, began, turns)
        self.limits[ALICE_KEY] = self.base + allowance + self.given

    @rule()
    def turn(self) -> None:
        """The key's period ends, and another begins; what was posted so far is the past's."""
        ((now, allowance),) = self.sql(
            "SELECT clock_timestamp(), allowance FROM budget_terms WHERE budget = %s", ALICE_KEY
        )
        self.sql(
            "UPDATE budget_terms SET period = 'day', turns_at = %s,"
            " began_at = %s - interval '1 day' WHERE budget = %s",
            *(now, now, ALICE_KEY),
        )
        call = "ledger_budget_turn(%s, %s, %s, %s::timestamptz + interval '1 day')"
        assert self.scoped(call, ALICE_KEY, now, now, now) is True
        assert self.scoped(call, ALICE_KEY, now, now, now) is False
        self.base, self.given = self.posted[ALICE_KEY], 0
        self.turns += 1
        self.limits[ALICE_KEY] = self.base + allowance

    @rule()
    def seal(self) -> None:
        """What is booked so far comes into seals and hours."""
        self.sql("SELECT ledger_seal(clock_timestamp(), 1000, 8)")

    @invariant()
    def counters_agree(self) -> None:
        """Every budget's row is what the model counts."""
        found = self.sql("SELECT id, posted, held, lim FROM budgets")
        assert {row[0]: row[1:] for row in found} == {
            budget: (self.posted[budget], self.held[budget], self.limits[budget])
            for budget in BUDGETS
        }

    @invariant()
    def lines_agree(self) -> None:
        """The last requests have the lines, and the payer, that they should."""
        for request, entry in list(self.entries.items())[-3:]:
            found = self.sql(
                "SELECT slot, kind, amount, debit FROM transfers WHERE request = %s ORDER BY slot",
                uuid.UUID(bytes=request),
            )
            payer = accounts.wallet if WALLET in entry.budgets else accounts.receivable
            assert found == [(*line, payer(ORG_A)) for line in entry.lines]

    @invariant()
    def reversals_agree(self) -> None:
        """What the journal gave back of the last requests."""
        for request, entry in list(self.entries.items())[-3:]:
            ((found,),) = self.sql(
                "SELECT coalesce(sum(amount), 0)::bigint FROM journal_entries WHERE reverses = %s",
                uuid.UUID(bytes=request),
            )
            assert found == entry.reversed <= entry.charged

    def _book(
        self, kind: EntryKind, debit: str, nano: int, key: str, entry: Entry | None = None
    ) -> None:
        payer = accounts.receivable if entry and WALLET not in entry.budgets else accounts.wallet
        journal_book(
            organization=ORG_A,
            kind=kind,
            debit=debit,
            credit=payer(ORG_A),
            nano=nano,
            reason="model",
            idempotency=key,
            actor=OPERATOR,
            reverses=uuid.UUID(bytes=entry.hold.request) if entry else None,
        )

    def _set(
        self, allowance: int, period: str, zone: str, began: datetime, turns: datetime | None
    ) -> None:
        self.scoped(
            "ledger_budget_set(%s, %s, 'key', %s, %s, %s, false, '{}', %s, %s)",
            *(ALICE_KEY, ORG_A, allowance, period, zone, began, turns),
        )


@contextmanager
def connected_machine() -> Iterator[None]:
    """The machine's connections to the database that the settings name."""
    loop = asyncio.new_event_loop()
    ledger = PostgresLedger(dsn())
    loop.run_until_complete(_start(ledger))
    LedgerMachine.loop, LedgerMachine.ledger = loop, ledger
    with psycopg.connect(superuser_dsn(), autocommit=True) as LedgerMachine.superuser:
        yield
    loop.run_until_complete(ledger.close())
    loop.close()


async def _waited(ask: Callable[[Any], Awaitable[None]], about: Hold | Settlement) -> None:
    await ask(about)


async def _start(ledger: PostgresLedger) -> None:
    ledger.start()
    await until(lambda: not ledger.away)
