"""Who sees money: nobody without a scope, each tenant its own, gateways only through functions."""

from __future__ import annotations

import pytest
from django.db import connections
from django.db.utils import ProgrammingError

from controlplane.billing.budgets.models import UNLIMITED_NANO, Budget, BudgetScope
from controlplane.billing.budgets.selectors import budgets_of
from controlplane.billing.budgets.services import budget_set
from controlplane.billing.ledger.models import OpenHold, Transfer
from controlplane.billing.ledger.selectors import transfers_of
from controlplane.bridge.money.ledger import PostgresLedger
from controlplane.core.permissions import organization_scope
from tests.support.money import (
    ALICE_KEY,
    CHARLIE_KEY,
    ORG_A,
    ORG_C,
    add_budget,
    budget_row,
    make_hold,
    rows,
    settlement_of,
)

TABLES = (
    "budgets",
    "open_holds",
    "transfers",
    "ledger_seals",
    "ledger_hours",
    "budget_terms",
    "budget_alerts",
    "journal_entries",
    "period_closes",
    "reconciliations",
)


@pytest.fixture
async def two_tenants(ledger: PostgresLedger) -> None:
    add_budget(ORG_A, 1_000, scope="organization")
    add_budget(ORG_C, 1_000, scope="organization", organization=ORG_C)
    for organization in (ORG_A, ORG_C):
        hold = make_hold(50, organization, organization=organization)
        await ledger.hold(hold)
        await ledger.settle(settlement_of(hold, 20))
        await ledger.hold(make_hold(10, organization, organization=organization))


def _seen() -> tuple[set[object], set[object], set[object]]:
    return (
        set(Budget.objects.values_list("organization", flat=True)),
        set(OpenHold.objects.values_list("organization", flat=True)),
        set(Transfer.objects.values_list("organization", flat=True)),
    )


def test_closed_without_a_scope(two_tenants: None) -> None:
    assert _seen() == (set(), set(), set())


def test_each_tenant_sees_its_own_and_the_scope_ends(two_tenants: None) -> None:
    with organization_scope([ORG_C]):
        assert _seen() == ({ORG_C}, {ORG_C}, {ORG_C})
    with organization_scope([ORG_A, ORG_C]):
        assert _seen() == ({ORG_A, ORG_C},) * 3
    assert _seen() == (set(), set(), set())


def test_selectors_read_within_the_scope(two_tenants: None) -> None:
    request = rows("SELECT request FROM open_holds WHERE organization = %s", ORG_A)[0][0]
    with organization_scope([ORG_A]):
        assert [line.kind for line in transfers_of(request)] == ["hold"]
        assert OpenHold.objects.get(request=request).amount == 10
        assert budgets_of([ORG_A, ORG_C])[ORG_A].room_nano == 970
    with organization_scope([ORG_C]):
        assert transfers_of(request) == []
        assert not OpenHold.objects.filter(request=request).exists()


@pytest.mark.parametrize("table", TABLES)
def test_the_gateway_role_reads_no_table(two_tenants: None, table: str) -> None:
    with (
        connections["gateway"].cursor() as cursor,
        pytest.raises(ProgrammingError, match="permission denied"),
    ):
        cursor.execute(f"SELECT count(*) FROM {table}")


@pytest.mark.parametrize("alias", ["default", "gateway"])
def test_partitions_are_granted_to_nobody(two_tenants: None, alias: str) -> None:
    name = rows("SELECT tableoid::regclass::text FROM transfers LIMIT 1")[0][0]
    with (
        connections[alias].cursor() as cursor,
        pytest.raises(ProgrammingError, match="permission denied"),
    ):
        cursor.execute(f"SELECT count(*) FROM {name}")


def test_a_partition_shows_nothing_even_if_it_were_granted(two_tenants: None) -> None:
    name = rows("SELECT tableoid::regclass::text FROM transfers LIMIT 1")[0][0]
    rows(f"GRANT SELECT ON {name} TO sluice_app")
    with connections["default"].cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {name}")
        assert cursor.fetchone() == (0,)


@pytest.mark.parametrize("call", ["ledger_expire(1)", "ledger_seal(now(), 1, 1)"])
def test_the_gateway_role_runs_no_job(database: str, call: str) -> None:
    with (
        connections["gateway"].cursor() as cursor,
        pytest.raises(ProgrammingError, match="permission denied"),
    ):
        cursor.execute(f"SELECT {call}")


def test_the_app_role_books_nothing(database: str) -> None:
    with (
        connections["default"].cursor() as cursor,
        pytest.raises(ProgrammingError, match="permission denied"),
    ):
        cursor.execute("SELECT ledger_open(gen_random_uuid())")


def test_a_limit_is_set_changed_and_lifted(two_tenants: None) -> None:
    budget_set(ORG_A, ALICE_KEY, scope=BudgetScope.KEY, limit_nano=500)
    budget_set(ORG_A, ALICE_KEY, scope=BudgetScope.KEY, limit_nano=700)
    assert rows("SELECT lim, scope FROM budgets WHERE id = %s", ALICE_KEY) == [(700, "key")]
    budget_set(ORG_A, ORG_A, scope=BudgetScope.ORGANIZATION, limit_nano=5)
    assert budget_row(ORG_A) == (20, 10, 25)
    budget_set(ORG_A, ORG_A, scope=BudgetScope.ORGANIZATION, limit_nano=UNLIMITED_NANO)
    assert rows("SELECT lim, over FROM budgets WHERE id = %s", ORG_A) == [(UNLIMITED_NANO, 0)]


def test_a_limit_is_news_to_gateways_but_spending_is_not(two_tenants: None) -> None:
    before = rows("SELECT version FROM config_version")[0][0]
    rows("UPDATE budgets SET posted = posted + 1")
    assert rows("SELECT version FROM config_version")[0][0] == before
    budget_set(ORG_C, CHARLIE_KEY, scope=BudgetScope.KEY, limit_nano=1)
    assert rows("SELECT version FROM config_version")[0][0] == before + 1


def test_charlies_budget_is_not_alices_to_change(two_tenants: None) -> None:
    with pytest.raises(ProgrammingError, match="is none of organization"):
        budget_set(ORG_A, ORG_C, scope=BudgetScope.ORGANIZATION, limit_nano=1)
    with pytest.raises(ValueError, match="limit_nano"):
        budget_set(ORG_A, ORG_A, scope=BudgetScope.ORGANIZATION, limit_nano=-1)
