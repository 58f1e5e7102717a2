"""What changes money from outside the hot path: limits, and the jobs around the ledger.

Each call is one short transaction or a bounded number of them. Holds and settlements are not here:
gateways call the SQL functions themselves.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection

from controlplane.billing.models import UNLIMITED_NANO, BudgetPeriod, BudgetScope, BudgetTerms
from controlplane.core.scope import organization_scope
from controlplane.kernel.calendar import period_around

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


def budget_set(
    organization: uuid.UUID, subject: uuid.UUID, *, scope: BudgetScope, limit_nano: int
) -> None:
    """Limit what a key, project or organization may spend; may be below what is spent.

    A budget that begins anew by the calendar goes on to do so. Raises ValueError on a limit that no
    budget can have.
    """
    if not 0 <= limit_nano <= UNLIMITED_NANO:
        raise ValueError(f"limit_nano must be 0 to {UNLIMITED_NANO}, not {limit_nano}")
    with organization_scope([organization]):
        terms = BudgetTerms.objects.filter(budget=subject).first() or BudgetTerms()
        budget_put(organization, subject, scope, terms, limit_nano)


def budget_put(
    organization: uuid.UUID,
    subject: uuid.UUID,
    scope: BudgetScope,
    terms: BudgetTerms,
    limit_nano: int,
) -> None:
    """Write a budget by these terms' period, zone, roll-over and alerts; needs the scope open."""
    period = BudgetPeriod(terms.period)
    began, turns = period_around(period, ZoneInfo(terms.zone), datetime.now(UTC))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT ledger_budget_set(%s, %s, %s, %s, %s, %s, %s, %s::smallint[], %s, %s)",
            [
                subject,
                organization,
                scope.value,
                limit_nano,
                period.value,
                terms.zone,
                terms.rollover,
                terms.alerts,
                began,
                turns,
            ],
        )


def budget_lift(organization: uuid.UUID, subject: uuid.UUID, *, scope: BudgetScope) -> None:
    """Take a limit away; the row stays, since holds may still count on it."""
    budget_set(organization, subject, scope=scope, limit_nano=UNLIMITED_NANO)


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
