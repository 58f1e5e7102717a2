"""Upkeep of hygiene's counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db import connection

KEPT = timedelta(days=90)
ROWS_DELETED_MAX = 5_000


def hygiene_forget(now: datetime | None = None) -> int:
    """Remove counts older than 90 days, so many a run; returns how many."""
    keep_from = (now or datetime.now(UTC)) - KEPT
    with connection.cursor() as cursor:
        cursor.execute("SELECT insights_hygiene_forget(%s, %s)", [keep_from, ROWS_DELETED_MAX])
        return int(cursor.fetchone()[0])
