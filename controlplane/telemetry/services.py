"""Partitions ahead, retention behind; every statement is its own short transaction."""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from controlplane.core.jobs.each import drop_in_bites
from controlplane.telemetry.rollups import MINUTE_DAYS, TIERS

DAYS_AHEAD = 7
RECORD_DAYS = 30
EXEMPLAR_DAYS = 14
PARTITIONS_DROPPED_MAX = 3
ROWS_DELETED_MAX = 5_000
# Of so many rows, one after the other, in a run each hour.
BITES_MAX = 200


def make_partitions(today: datetime | None = None) -> int:
    """Keep a week of days ahead; returns how many were missing."""
    day = (today or datetime.now(UTC)).date()
    made: int = _scalar(
        "SELECT telemetry_make_partitions(%s, %s)",
        [day - timedelta(days=1), day + timedelta(days=DAYS_AHEAD)],
    )
    return made


def drop_old_partitions(now: datetime | None = None) -> int:
    """Retention, a bounded bite at a time; returns partitions dropped and rows deleted."""
    moment = now or datetime.now(UTC)
    gone: int = 0
    for parent, days in (
        ("request_records", RECORD_DAYS),
        ("histogram_minutes", MINUTE_DAYS),
        ("usage_minutes", MINUTE_DAYS),
    ):
        keep_from = (moment - timedelta(days=days)).date()
        gone += _scalar(
            "SELECT telemetry_drop_partitions(%s, %s, %s)",
            [parent, keep_from, PARTITIONS_DROPPED_MAX],
        )
    for tier in TIERS:
        keep_after = moment - timedelta(days=tier.keep_days)
        gone += _drop_rows("SELECT telemetry_drop_rollups(%s, %s, %s)", tier.step_s, keep_after)
    keep_after = moment - timedelta(days=EXEMPLAR_DAYS)
    return gone + _drop_rows("SELECT telemetry_drop_exemplars(%s, %s)", keep_after)


def _drop_rows(statement: str, *values: object) -> int:
    def bite(rows_max: int) -> int:
        dropped: int = _scalar(statement, [*values, rows_max])
        return dropped

    return drop_in_bites(bite, rows_max=ROWS_DELETED_MAX, bites_max=BITES_MAX)


def _scalar(query: str, values: list[Any]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchone()[0]
