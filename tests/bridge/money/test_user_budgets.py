"""Budgets of end users on a real PostgreSQL: made with the first hold, anew with the period."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import msgspec
import pytest

from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.gateway.ports import BudgetExceeded, Hold
from tests.support.money import (
    ORG_A,
    PROJECT_A,
    add_budget,
    add_part,
    budget_row,
    dsn,
    make_hold,
    rows,
    settlement_of,
)
from tests.support.waiting import until

TEMPLATE = uuid.UUID(int=0xA7)
USERS_MAX = 10_000
_FULL = """
    WITH made AS (
        INSERT INTO budget_parts (budget, organization, project, template, began_at, allowance)
        SELECT md5(n::text)::uuid, %s, %s, t.budget, t.began_at, t.allowance
        FROM budget_terms t, generate_series(1, %s) AS n WHERE t.budget = %s
        RETURNING budget, organization, allowance
    )
    INSERT INTO budgets (id, organization, scope, lim)
    SELECT budget, organization, 'user', allowance FROM made
"""


@pytest.fixture
async def ledger(database: str) -> AsyncIterator[PostgresLedger]:
    made = PostgresLedger(dsn())
    made.start()
    await until(lambda: not made.away)
    add_part(TEMPLATE, 10, scope="users")
    yield made
    await made.close()


def hold_of(user: int, nano: int = 6, *more: uuid.UUID) -> Hold:
    own = uuid.UUID(int=user)
    hold = make_hold(nano, own, *more)
    return msgspec.structs.replace(hold, users=(own.hex, TEMPLATE.hex))


def begin_a_period() -> None:
    rows("UPDATE budget_terms SET began_at = began_at + interval '1 day'")


async def test_many_first_holds_at_once_make_one_budget(ledger: PostgresLedger) -> None:
    add_budget(ORG_A, 1_000, scope="organization")
    other = PostgresLedger(dsn())
    other.start()
    await until(lambda: not other.away)
    holds = [hold_of(1 + number % 3, 1, ORG_A) for number in range(120)]
    outcomes = await asyncio.gather(
        *((ledger, other)[place % 2].hold(hold) for place, hold in enumerate(holds)),
        return_exceptions=True,
    )
    await other.close()
    assert sum(outcome is None for outcome in outcomes) == 30
    assert {each.scope for each in outcomes if isinstance(each, BudgetExceeded)} == {"user"}
    assert [budget_row(uuid.UUID(int=user)) for user in (1, 2, 3)] == [(0, 10, 0)] * 3
    assert budget_row(ORG_A) == (0, 30, 0)


async def test_a_new_period_begins_with_what_is_posted(ledger: PostgresLedger) -> None:
    hold = hold_of(1, 8)
    await ledger.hold(hold)
    await ledger.settle(settlement_of(hold, 8))
    with pytest.raises(BudgetExceeded):
        await ledger.hold(hold_of(1, 3))
    begin_a_period()
    await ledger.hold(hold_of(1, 10))
    assert budget_row(uuid.UUID(int=1)) == (8, 10, 0)
    assert rows("SELECT lim FROM budgets WHERE id = %s", uuid.UUID(int=1)) == [(18,)]


async def test_another_amount_counts_from_the_next_hold_on(ledger: PostgresLedger) -> None:
    await ledger.hold(hold_of(1, 8))
    rows("UPDATE budget_terms SET allowance = 20")
    await ledger.hold(hold_of(1, 12))
    rows("UPDATE budget_terms SET allowance = 5")
    with pytest.raises(BudgetExceeded):
        await ledger.hold(hold_of(1, 1))
    assert budget_row(uuid.UUID(int=1)) == (0, 20, 15)


async def test_as_many_as_can_be_until_those_of_before_make_room(ledger: PostgresLedger) -> None:
    rows(_FULL, ORG_A, PROJECT_A, USERS_MAX, TEMPLATE)
    with pytest.raises(BudgetExceeded) as refused:
        await ledger.hold(hold_of(1))
    assert refused.value.scope == "users"
    begin_a_period()
    await ledger.hold(hold_of(1))
    assert budget_row(uuid.UUID(int=1)) == (0, 6, 0)
