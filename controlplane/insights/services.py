"""Upkeep of hygiene's counts."""

from datetime import UTC, datetime, timedelta

from django.db import connection

from controlplane.core.jobs.bites import drop_in_bites

KEPT = timedelta(days=90)
ROWS_DELETED_MAX = 5_000
# In a run each hour: 100 gateways write at most half as much, 5,000 rows each.
BITES_MAX = 200


def hygiene_forget(now: datetime | None = None) -> int:
    """Remove counts older than 90 days, bite by bite; returns how many."""
    keep_from = (now or datetime.now(UTC)) - KEPT

    def bite(rows_max: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT insights_hygiene_forget(%s, %s)", [keep_from, rows_max])
            return int(cursor.fetchone()[0])

    return drop_in_bites(bite, rows_max=ROWS_DELETED_MAX, bites_max=BITES_MAX)
