"""One suite for the Ledger port: on PostgreSQL, and in memory as tests of the gateway use it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec
import pytest

from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.ports import BudgetExceeded, Hold, Ledger, LedgerAway
from controlplane.kernel.ids import new_request_id
from inference.contract.frames import Report, Timing, Usage
from tests.support.memory_ledger import Line, MemoryBudget, MemoryLedger
from tests.support.money import (
    ALICE_KEY,
    BOB_KEY,
    ORG_A,
    PROJECT_A,
    add_budget,
    add_part,
    budget_row,
    dsn,
    lines,
    make_hold,
    rows,
    settlement_of,
)
from tests.support.waiting import until

TEMPLATE, USER, OTHER_USER = (uuid.UUID(int=number) for number in (0xA7, 0xA8, 0xA9))
TIMING = Timing(queue_us=1, prefill_us=1, decode_us=1, held_us=3)


class Books(Protocol):
    """A ledger, and what is on it."""

    @property
    def ledger(self) -> Ledger: ...

    def add(self, budget: uuid.UUID, lim: int, *, scope: str) -> None: ...

    def add_part(self, budget: uuid.UUID, lim: int, *, scope: str, model: str = "") -> None:
        """A budget of a model, or of every end user, of project A."""

    def budget(self, budget: uuid.UUID) -> tuple[int, int]:
        """(posted, held)."""

    def lines(self, request: bytes) -> list[Line]: ...

    async def expire(self) -> None:
        """The sweeper runs."""


class RealBooks:
    """Those of PostgreSQL."""

    def __init__(self, ledger: PostgresLedger) -> None:
        self.ledger: Ledger = ledger

    def add(self, budget: uuid.UUID, lim: int, *, scope: str) -> None:
        add_budget(budget, lim, scope=scope)

    def add_part(self, budget: uuid.UUID, lim: int, *, scope: str, model: str = "") -> None:
        add_part(budget, lim, scope=scope, model=model)

    def budget(self, budget: uuid.UUID) -> tuple[int, int]:
        return budget_row(budget)[:2]

    def lines(self, request: bytes) -> list[Line]:
        return lines(request)

    async def expire(self) -> None:
        rows("SELECT ledger_expire(10)")


class MemoryBooks:
    """Those of the fake."""

    def __init__(self) -> None:
        self._memory = MemoryLedger(lenient=True, known_only=True)
        self.ledger: Ledger = self._memory

    def add(self, budget: uuid.UUID, lim: int, *, scope: str) -> None:
        self._memory.budgets[budget.hex] = MemoryBudget(lim, scope)

    def add_part(self, budget: uuid.UUID, lim: int, *, scope: str, model: str = "") -> None:
        self._memory.budgets[budget.hex] = MemoryBudget(lim, scope, model=model)

    def budget(self, budget: uuid.UUID) -> tuple[int, int]:
        found = self._memory.budgets[budget.hex]
        return found.posted, found.held

    def lines(self, request: bytes) -> list[Line]:
        return self._memory.lines.get(request, [])

    async def expire(self) -> None:
        self._memory.expire()


@pytest.fixture
async def books(kind: str) -> AsyncIterator[Books]:
    if kind == "memory":
        yield MemoryBooks()
        return
    ledger = PostgresLedger(dsn())
    ledger.start()
    await until(lambda: not ledger.away)
    yield RealBooks(ledger)
    await ledger.close()


def three_budgets(books: Books, lim: int = 1_000) -> None:
    books.add(ALICE_KEY, lim, scope="key")
    books.add(PROJECT_A, lim, scope="project")
    books.add(ORG_A, lim, scope="organization")


def report(request: bytes, *, completion: int = 11) -> Report:
    usage = Usage(prompt_tokens=15, cached_tokens=10, completion_tokens=completion)
    return Report(
        request=request, model="sluice-5m", usage=usage, timing=TIMING, finish="stop", ticket=b""
    )


async def test_settling_posts_the_charge_and_returns_the_rest(books: Books) -> None:
    three_budgets(books)
    hold = make_hold(100, ALICE_KEY, PROJECT_A, ORG_A)
    await books.ledger.hold(hold)
    assert books.budget(ORG_A) == (0, 100)
    await books.ledger.settle(settlement_of(hold, 30))
    for budget in (ALICE_KEY, PROJECT_A, ORG_A):
        assert books.budget(budget) == (30, 0)
    assert books.lines(hold.request) == [(0, "hold", 100), (1, "settle", 30)]


async def test_releasing_gives_everything_back(books: Books) -> None:
    three_budgets(books)
    hold = make_hold(100, ALICE_KEY, ORG_A)
    await books.ledger.hold(hold)
    await books.ledger.settle(settlement_of(hold, 0))
    assert books.budget(ALICE_KEY) == (0, 0)
    assert books.lines(hold.request) == [(0, "hold", 100), (1, "release", 100)]


async def test_a_hold_is_given_back_without_waiting(books: Books) -> None:
    three_budgets(books)
    hold, free = make_hold(100, ORG_A), make_hold(0, ORG_A)
    await books.ledger.hold(hold)
    await books.ledger.hold(free)
    books.ledger.release(hold)
    books.ledger.release(free)
    await until(lambda: books.budget(ORG_A) == (0, 0))
    assert books.lines(hold.request) == [(0, "hold", 100), (1, "release", 100)]
    assert books.lines(free.request) == []
    assert books.budget(ORG_A) == (0, 0)


@pytest.mark.parametrize(
    ("short", "scope"), [(ALICE_KEY, "key"), (PROJECT_A, "project"), (ORG_A, "organization")]
)
async def test_refusal_names_the_scope_without_room(
    books: Books, short: object, scope: str
) -> None:
    for budget, name in ((ALICE_KEY, "key"), (PROJECT_A, "project"), (ORG_A, "organization")):
        books.add(budget, 5 if budget == short else 1_000, scope=name)
    asked = make_hold(6, ALICE_KEY, PROJECT_A, ORG_A)
    with pytest.raises(BudgetExceeded) as refused:
        await books.ledger.hold(asked)
    assert refused.value.scope == scope
    assert all(books.budget(one) == (0, 0) for one in (ALICE_KEY, PROJECT_A, ORG_A))
    assert books.lines(asked.request) == []


async def test_only_those_that_fit_are_admitted_in_order(books: Books) -> None:
    three_budgets(books, lim=1_000)
    books.add(BOB_KEY, 10, scope="key")
    holds = [make_hold(4, BOB_KEY, ORG_A) for _ in range(4)] + [make_hold(2, BOB_KEY, ORG_A)]
    outcomes = await asyncio.gather(*map(books.ledger.hold, holds), return_exceptions=True)
    refused = [isinstance(outcome, BudgetExceeded) for outcome in outcomes]
    assert refused == [False, False, True, True, False]
    assert books.budget(BOB_KEY) == (0, 10)
    assert books.budget(ORG_A) == (0, 10)


async def test_a_budget_that_is_not_there_admits_nothing(books: Books) -> None:
    with pytest.raises(LedgerAway, match="not on the ledger"):
        await books.ledger.hold(make_hold(1, ALICE_KEY))


async def test_a_repeated_hold_takes_room_once(books: Books) -> None:
    three_budgets(books)
    hold = make_hold(60, ORG_A)
    await books.ledger.hold(hold)
    await books.ledger.hold(hold)
    assert books.budget(ORG_A) == (0, 60)
    await books.ledger.settle(settlement_of(hold, 10))
    await books.ledger.hold(hold)
    assert books.budget(ORG_A) == (10, 0)


async def test_a_repeated_settlement_changes_nothing(books: Books) -> None:
    three_budgets(books)
    hold = make_hold(60, ORG_A)
    await books.ledger.hold(hold)
    same = [books.ledger.settle(settlement_of(hold, 10)) for _ in range(3)]
    await asyncio.gather(*same)
    await books.ledger.settle(settlement_of(hold, 25))
    assert books.budget(ORG_A) == (10, 0)
    assert books.lines(hold.request) == [(0, "hold", 60), (1, "settle", 10)]


async def test_a_charge_above_the_hold_posts_an_overage(books: Books) -> None:
    books.add(ORG_A, 60, scope="organization")
    hold = make_hold(60, ORG_A)
    await books.ledger.hold(hold)
    await books.ledger.settle(settlement_of(hold, 75))
    assert books.lines(hold.request) == [(0, "hold", 60), (1, "settle", 60), (2, "overage", 15)]
    assert books.budget(ORG_A) == (75, 0)
    with pytest.raises(BudgetExceeded):
        await books.ledger.hold(make_hold(1, ORG_A))


async def test_a_request_without_a_hold_is_charged_once(books: Books) -> None:
    settlement = settlement_of(make_hold(0), 12)
    await asyncio.gather(books.ledger.settle(settlement), books.ledger.settle(settlement))
    assert books.lines(settlement.request) == [(1, "settle", 12)]


async def test_a_lost_hold_is_booked_with_its_settlement(books: Books) -> None:
    books.add(ORG_A, 50, scope="organization")
    hold = make_hold(60, ORG_A)
    await books.ledger.settle(settlement_of(hold, 20))
    assert books.lines(hold.request) == [(0, "hold", 60), (1, "settle", 20)]
    assert books.budget(ORG_A) == (20, 0)


async def test_a_report_settles_an_open_hold_by_its_own_price(books: Books) -> None:
    three_budgets(books)
    hold = make_hold(100, ALICE_KEY, ORG_A)
    await books.ledger.hold(hold)
    assert await books.ledger.settle_report(report(hold.request))
    assert books.lines(hold.request) == [(0, "hold", 100), (1, "settle", 50)]
    assert await books.ledger.settle_report(report(hold.request))
    assert books.budget(ORG_A) == (50, 0)


@pytest.mark.parametrize("finish", ["cancelled", "error"])
async def test_a_report_of_a_job_that_ended_before_its_first_token_releases_the_hold(
    books: Books, finish: str
) -> None:
    three_budgets(books)
    hold = make_hold(100, ALICE_KEY, ORG_A)
    await books.ledger.hold(hold)
    ended = msgspec.structs.replace(report(hold.request, completion=0), finish=finish)
    assert await books.ledger.settle_report(ended)
    assert books.lines(hold.request) == [(0, "hold", 100), (1, "release", 100)]
    assert books.budget(ORG_A) == (0, 0)


async def test_a_report_books_nothing_while_another_gateway_serves(
    books: Books,
) -> None:
    three_budgets(books)
    hold = make_hold(100, ALICE_KEY, ORG_A, expires_s=0)
    early = report(hold.request, completion=0)
    assert not await books.ledger.settle_report(early, served=True), "its hold may be on its way"
    await books.ledger.hold(hold)
    assert not await books.ledger.settle_report(early, served=True)
    await books.expire()
    assert not await books.ledger.settle_report(early, served=True)
    assert books.lines(hold.request) == [(0, "hold", 100), (1, "expire", 100)]
    await books.ledger.settle(settlement_of(hold, 40))
    assert await books.ledger.settle_report(early, served=True), "the node may forget it"
    assert books.lines(hold.request)[2:] == [(2, "late", 40)]


async def test_a_late_report_over_its_hold_books_no_more_than_the_hold(books: Books) -> None:
    three_budgets(books)
    hold = make_hold(100, ALICE_KEY, ORG_A, expires_s=0)
    await books.ledger.hold(hold)
    await books.expire()
    assert await books.ledger.settle_report(report(hold.request, completion=5_000))
    assert books.lines(hold.request) == [(0, "hold", 100), (1, "expire", 100), (2, "late", 98)]


async def test_a_report_after_expiry_is_booked_late(books: Books) -> None:
    three_budgets(books)
    hold = make_hold(100, ALICE_KEY, ORG_A, expires_s=0)
    await books.ledger.hold(hold)
    await books.expire()
    assert books.budget(ORG_A) == (0, 0)
    for _ in range(2):
        assert await books.ledger.settle_report(report(hold.request))
    assert books.lines(hold.request) == [(0, "hold", 100), (1, "expire", 100), (2, "late", 50)]
    assert books.budget(ORG_A) == (50, 0)


async def test_a_settlement_after_expiry_is_booked_late(books: Books) -> None:
    three_budgets(books)
    hold = make_hold(100, ALICE_KEY, expires_s=0)
    await books.ledger.hold(hold)
    await books.expire()
    await books.ledger.settle(settlement_of(hold, 40))
    assert books.lines(hold.request) == [(0, "hold", 100), (1, "expire", 100), (2, "late", 40)]


async def test_a_report_of_nothing_known_is_answered(books: Books) -> None:
    unknown = report(new_request_id())
    assert await books.ledger.settle_report(unknown)
    assert books.lines(unknown.request) == []


async def test_an_end_user_gets_a_budget_with_the_first_hold(books: Books) -> None:
    books.add_part(TEMPLATE, 10, scope="users")
    books.add(ORG_A, 1_000, scope="organization")

    def hold_of(user: uuid.UUID) -> Hold:
        hold = make_hold(6, user, ORG_A)
        return msgspec.structs.replace(hold, users=(user.hex, TEMPLATE.hex))

    first = hold_of(USER)
    outcomes = await asyncio.gather(
        *map(books.ledger.hold, (first, hold_of(USER), hold_of(OTHER_USER))), return_exceptions=True
    )
    refused = [outcome for outcome in outcomes if isinstance(outcome, BudgetExceeded)]
    assert [(one.scope, one.budget) for one in refused] == [("user", USER.hex)]
    assert [books.budget(one) for one in (USER, OTHER_USER, ORG_A)] == [(0, 6), (0, 6), (0, 12)]
    await books.ledger.settle(settlement_of(first, 4))
    await books.ledger.hold(hold_of(USER))
    assert books.budget(USER) == (4, 6)


@pytest.mark.parametrize("served", ["sluice-5m", "other"])
async def test_of_the_budgets_of_models_the_one_that_served_is_charged(
    books: Books, served: str
) -> None:
    books.add_part(USER, 100, scope="model", model="sluice-5m")
    books.add_part(OTHER_USER, 100, scope="model", model="other")
    books.add(ORG_A, 1_000, scope="organization")
    hold = make_hold(60, USER, OTHER_USER, ORG_A)
    hold = msgspec.structs.replace(hold, others={"other": hold.price}, exactly=True)
    await books.ledger.hold(hold)
    assert books.budget(USER) == books.budget(OTHER_USER) == (0, 60)
    charge = settlement_of(hold, 20)
    await books.ledger.settle(msgspec.structs.replace(charge, model=served, exactly=True))
    charged = {"sluice-5m": (USER, OTHER_USER), "other": (OTHER_USER, USER)}[served]
    assert [books.budget(one) for one in (*charged, ORG_A)] == [(20, 0), (0, 0), (20, 0)]
