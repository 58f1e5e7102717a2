"""Nothing on the ledger changes: not by SQL, not by the ORM, not by its owner, not by partition."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import connections
from django.db.utils import DatabaseError

from controlplane.billing.ledger import services
from controlplane.billing.ledger.models import LedgerSeal, Transfer
from controlplane.bridge.money.ledger import PostgresLedger
from tests.support.money import ORG_A, add_budget, lines, make_hold, rows, settlement_of

STATEMENTS = [
    "UPDATE {} SET amount = amount + 1",
    "DELETE FROM {}",
    "TRUNCATE {}",
    "TRUNCATE {} CASCADE",
]


@pytest.fixture
async def booked(ledger: PostgresLedger) -> bytes:
    add_budget(ORG_A, 1_000, scope="organization")
    hold = make_hold(100, ORG_A)
    await ledger.hold(hold)
    await ledger.settle(settlement_of(hold, 40))
    rows("SELECT ledger_seal(clock_timestamp(), 10, 8)")
    return hold.request


def _partition_of(request: bytes) -> str:
    name: str = rows(
        "SELECT tableoid::regclass::text FROM transfers WHERE request = encode(%s, 'hex')::uuid",
        request,
    )[0][0]
    return name


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("table", ["transfers", "partition", "ledger_seals"])
async def test_even_the_superuser_is_refused(booked: bytes, statement: str, table: str) -> None:
    name = _partition_of(booked) if table == "partition" else table
    with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
        rows(statement.format(name))
    assert lines(booked) == [(0, "hold", 100), (1, "settle", 40)]


async def test_the_upsert_is_refused_too(booked: bytes) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation):
        rows(
            "INSERT INTO transfers SELECT * FROM transfers WHERE slot = 1"
            " ON CONFLICT (request, slot) DO UPDATE SET amount = 1"
        )


@pytest.mark.parametrize("alias", ["default", "owner"])
def test_the_orm_is_refused(booked: bytes, alias: str) -> None:
    with pytest.raises(DatabaseError):
        Transfer.objects.using(alias).update(amount=1)
    with pytest.raises(DatabaseError):
        Transfer.objects.using(alias).all().delete()
    with pytest.raises(DatabaseError):
        LedgerSeal.objects.using(alias).update(rows=1)


@pytest.mark.parametrize("alias", ["default", "gateway"])
@pytest.mark.parametrize("statement", STATEMENTS[:3])
def test_roles_have_no_right_to_try(booked: bytes, alias: str, statement: str) -> None:
    with (
        connections[alias].cursor() as cursor,
        pytest.raises(DatabaseError, match="permission denied"),
    ):
        cursor.execute(statement.format("transfers"))


def test_partitions_made_later_are_guarded_too(database: str) -> None:
    later = datetime.now(UTC) + timedelta(days=20)
    assert services.make_partitions(later) == 9
    name = later.strftime("transfers_%Y%m%d")
    with pytest.raises(psycopg.errors.RestrictViolation):
        rows(f"TRUNCATE {name}")
