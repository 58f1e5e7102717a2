"""Counts summed into longer steps, and old ones dropped; each statement is short."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

# Gateways may write a minute late, after an outage of the database.
REOPEN = timedelta(minutes=20)
STEPS = ((60, 300), (300, 3_600))
KEPT_DAYS = {60: 4, 300: 40, 3_600: 400}
ROWS_DELETED_MAX = 20_000


def counts_roll_up(now: datetime | None = None) -> int:
    """Bring 5 minutes and hours up to date; returns rows written."""
    moment = now or timezone.now()
    return sum(
        _number("SELECT slo_roll_up(%s, %s, %s, %s)", [source, step, moment, REOPEN])
        for source, step in STEPS
    )


def counts_forget(now: datetime | None = None) -> int:
    """A bounded bite of what is too old; returns rows dropped."""
    moment = now or timezone.now()
    return sum(
        _number(
            "SELECT slo_forget(%s, %s, %s)",
            [step, moment - timedelta(days=days), ROWS_DELETED_MAX],
        )
        for step, days in KEPT_DAYS.items()
    )


def _number(statement: str, values: list[Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return int(cursor.fetchone()[0] or 0)
