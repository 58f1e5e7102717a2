"""The Standings port on a real PostgreSQL: budgets of the key's line, and what it was charged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from controlplane.billing.budgets.services import BudgetDraft, budget_plan
from controlplane.bridge.money.standings import PostgresStandings
from controlplane.gateway.ports import LedgerAway
from controlplane.tenants.keys import apikey_create, apikey_rotate
from controlplane.tenants.models import ApiKey
from tests.support.orm import orm
from tests.support.people import Cast, make_cast
from tests.support.standings import running_standings


@pytest.fixture
async def standings(database: str) -> AsyncIterator[PostgresStandings]:
    async with running_standings() as made:
        yield made


@orm
def plan() -> tuple[Cast, ApiKey, ApiKey]:
    """A rotated key with a budget, in an organization with another."""
    cast = make_cast()
    old = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    budget_plan(actor=cast.alice, subject=cast.acme, draft=BudgetDraft(allowance_nano=90))
    draft = BudgetDraft(allowance_nano=50, period="month", zone="Europe/Berlin")
    budget_plan(actor=cast.alice, subject=old, draft=draft)
    return cast, old, apikey_rotate(actor=cast.bob, key=old).key


async def test_both_keys_of_a_line_have_its_budget(standings: PostgresStandings) -> None:
    _, old, new = await plan()
    for key in (old, new):
        told = await standings.of(key.id.hex)
        assert [(one.scope, one.limit_nano, one.left_nano) for one in told.budgets] == [
            ("key", 50, 50),
            ("organization", 90, 90),
        ]
        assert (told.budgets[0].period, told.budgets[1].period) == ("month", "none")
        assert told.budgets[0].turns_at_s and told.budgets[1].turns_at_s is None
        assert (told.day_nano, told.month_nano) == (0, 0)


async def test_who_does_not_wait_asks_behind_nobody(standings: PostgresStandings) -> None:
    _, old, new = await plan()
    first, refused = await asyncio.gather(
        standings.of(old.id.hex), standings.of(new.id.hex, waits=False), return_exceptions=True
    )
    assert isinstance(refused, LedgerAway)
    asking = asyncio.create_task(standings.of(new.id.hex))
    # What is known already is told meanwhile.
    assert await standings.of(old.id.hex, waits=False) == first
    await asking
    assert (await standings.of(new.id.hex, waits=False)).budgets
