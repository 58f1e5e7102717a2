"""One suite for the Standings port: on PostgreSQL, and in memory as tests of the gateway use it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from controlplane.billing.budgets.services import BudgetDraft, budget_plan
from controlplane.bridge.money.standings import PostgresStandings
from controlplane.gateway.ports import BudgetRoom, KeyStanding, LedgerAway, Standings
from controlplane.tenants.keys import apikey_create
from tests.support.orm import orm
from tests.support.people import make_cast
from tests.support.ports import MemoryStandings
from tests.support.standings import running_standings

KEYS, WHOLE = 50, 90
TOLD = KeyStanding(
    budgets=(
        BudgetRoom(
            scope="key", limit_nano=KEYS, spent_nano=0, held_nano=0, period="none", turns_at_s=None
        ),
        BudgetRoom(
            scope="organization", limit_nano=WHOLE, spent_nano=0, held_nano=0, period="none",
            turns_at_s=None,
        ),
    )
)  # fmt: skip


@orm
def plan() -> str:
    """A key with a budget, in an organization with another."""
    cast = make_cast()
    key = apikey_create(actor=cast.alice, project=cast.project, label="k").key
    budget_plan(actor=cast.alice, subject=cast.acme, draft=BudgetDraft(allowance_nano=WHOLE))
    budget_plan(actor=cast.alice, subject=key, draft=BudgetDraft(allowance_nano=KEYS))
    return key.id.hex


@pytest.fixture
async def asked(kind: str) -> AsyncIterator[tuple[Standings, str]]:
    """The port, and the key of which `TOLD` is true."""
    if kind == "memory":
        memory = MemoryStandings(standing=TOLD)
        yield memory, memory.key
        return
    key = await plan()
    async with running_standings() as made:
        yield made, key


async def test_what_a_key_may_spend_is_told_narrowest_first(asked: tuple[Standings, str]) -> None:
    standings, key = asked
    for _ in range(2):
        assert await standings.of(key) == TOLD


async def test_what_is_no_key_stands_for_nothing(asked: tuple[Standings, str]) -> None:
    standings, _ = asked
    assert await standings.of(uuid.uuid4().hex) == KeyStanding()


@pytest.mark.parametrize("real", [True, False], ids=["postgresql", "memory"])
async def test_where_nobody_can_tell_it_is_said(real: bool) -> None:
    standings: Standings = PostgresStandings("") if real else MemoryStandings(away=True)
    with pytest.raises(LedgerAway):
        await standings.of(uuid.uuid4().hex)
