"""The jobs around the ledger: holds that expire, seals, partitions, and counters compared.

Each call is one short transaction or a bounded number of them. Holds and settlements are not here:
gateways call the SQL functions themselves.
"""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection

DAYS_AHEAD = 7
EXPIRED_PER_CALL_MAX = 1_000
EXPIRE_CALLS_MAX = 20
# Far longer than any transaction of ours may last, so that no row can still land in a sealed range.
SEAL_LAG = timedelta(seconds=60)
SEAL_ROWS_MAX = 20_000
SEALS_PER_RUN_MAX = 20
# Lines are booked at most this many days after their request's id.
BOOKED_DAYS_MAX = 8
# The clocks that make ids and the one that books may differ by this much.
ID_MARGIN = timedelta(minutes=1)


class Swept(NamedTuple):
    """Holds that expired, and what they had reserved."""

    holds: int
    nano: int


class Difference(NamedTuple):
    """A budget whose counter disagrees with the sum of its open holds."""

    budget: uuid.UUID
    scope: str
    counted: int
    summed: int


def sweep_holds() -> Swept:
    """Expire the holds whose time is over, a bounded number at a time."""
    holds = nano = 0
    for _ in range(EXPIRE_CALLS_MAX):
        row = _row("SELECT holds, nano FROM ledger_expire(%s)", [EXPIRED_PER_CALL_MAX])
        holds, nano = holds + row[0], nano + row[1]
        if row[0] < EXPIRED_PER_CALL_MAX:
            break
    return Swept(holds, nano)


def seal_ledger(until: datetime | None = None) -> int:
    """Seal what was booked before `until`, by default a minute ago; returns the rows sealed."""
    end = until or datetime.now(UTC) - SEAL_LAG
    sealed = 0
    for _ in range(SEALS_PER_RUN_MAX):
        rows = _row("SELECT ledger_seal(%s, %s, %s)", [end, SEAL_ROWS_MAX, BOOKED_DAYS_MAX])[0]
        sealed += rows
        if rows == 0:
            break
    return sealed


def make_partitions(today: datetime | None = None) -> int:
    """Keep a week of the ledger's days ahead; returns how many were missing."""
    day = (today or datetime.now(UTC)).date()
    made: int = _row(
        "SELECT ledger_make_partitions(%s, %s)",
        [day - timedelta(days=1), day + timedelta(days=DAYS_AHEAD)],
    )[0]
    return made


def reconcile() -> list[Difference]:
    """Budgets whose held counter is not the sum of their open holds: always none."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT budget, scope, counted, summed FROM ledger_held_differences()")
        return [Difference(*row) for row in cursor.fetchall()]


def _row(query: str, values: list[Any]) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        row: tuple[Any, ...] = cursor.fetchone()
        return row
