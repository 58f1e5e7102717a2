"""Upkeep of telemetry: roll-ups from minutes to days, partitions ahead, retention behind.

Every statement is its own short transaction. Histograms are merged here, bit for bit, in any order.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection

from controlplane.core.bites import drop_in_bites
from controlplane.kernel.histogram import Histogram

EPOCH = datetime.fromtimestamp(0, UTC)
DAYS_AHEAD = 7
# Late rows and flushes land in a minute that is over: windows this young are rolled up again.
REOPEN = timedelta(minutes=15)
WINDOWS_MAX = 200
RECORD_DAYS = 30
EXEMPLAR_DAYS = 14
MINUTE_DAYS = 3
PARTITIONS_DROPPED_MAX = 3
ROWS_DELETED_MAX = 5_000
# Of so many rows, one after the other, in a run each hour.
BITES_MAX = 200


class Tier(NamedTuple):
    """One step of the ladder: windows of `step_s` made from windows of `source_s`."""

    source_s: int
    step_s: int
    keep_days: int


TIERS = (
    Tier(60, 300, 14),
    Tier(300, 3_600, 396),
    Tier(3_600, 21_600, 396),
    Tier(21_600, 86_400, 1_826),
)


def make_partitions(today: datetime | None = None) -> int:
    """Keep a week of days ahead; returns how many were missing."""
    day = (today or datetime.now(UTC)).date()
    made: int = _scalar(
        "SELECT telemetry_make_partitions(%s, %s)",
        [day - timedelta(days=1), day + timedelta(days=DAYS_AHEAD)],
    )
    return made


def roll_up(now: datetime | None = None) -> int:
    """Bring every tier up to date, within a bound of windows; returns the windows written."""
    moment = now or datetime.now(UTC)
    return sum(_roll_tier(tier, moment) for tier in TIERS)


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


def _roll_tier(tier: Tier, now: datetime) -> int:
    last = _scalar("SELECT telemetry_rollup_last(%s)", [tier.step_s])
    # An open window is rolled up too, with what is in it so far, and again at the next run.
    cursor = EPOCH if last is None else min(last, now - REOPEN)
    for count in range(WINDOWS_MAX):
        found = _scalar(
            "SELECT telemetry_rollup_next(%s, %s)", [tier.source_s, _floor(cursor, tier.step_s)]
        )
        if found is None:
            return count
        opens = _floor(found, tier.step_s)
        cursor = opens + timedelta(seconds=tier.step_s)
        _roll_window(tier, opens, cursor)
    return WINDOWS_MAX


def _roll_window(tier: Tier, opens: datetime, closes: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT * FROM telemetry_rollup_read(%s, %s, %s)", [tier.source_s, opens, closes]
        )
        merged: dict[tuple[Any, ...], Histogram] = {}
        for *parts, data in cursor.fetchall():
            key = tuple(parts)
            if key not in merged:
                merged[key] = Histogram()
            merged[key].add_bytes(data)
        if merged:
            columns = [list(column) for column in zip(*merged, strict=True)]
            blobs = [histogram.to_bytes() for histogram in merged.values()]
            cursor.execute(
                "SELECT telemetry_rollup_write(%s, %s, %s::uuid[], %s::uuid[], %s::text[],"
                " %s::text[], %s::text[], %s::text[], %s::text[], %s::smallint[], %s::smallint[],"
                " %s::bytea[])",
                [tier.step_s, opens, *columns, blobs],
            )
        cursor.execute(
            "SELECT telemetry_rollup_usage(%s, %s, %s, %s)",
            [tier.source_s, tier.step_s, opens, closes],
        )


def _floor(moment: datetime, step_s: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // step_s * step_s, UTC)


def _scalar(query: str, values: list[Any]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchone()[0]
