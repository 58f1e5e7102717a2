"""Which stored step answers a question: the coarsest that fits, and finer ones at the edges."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db import connection

MINUTE_S = 60
ROLLUP_S = 300
HOUR_S = 3_600
QUARTER_S = 21_600
DAY_S = 86_400
COARSEST_FIRST = (DAY_S, QUARTER_S, HOUR_S, ROLLUP_S)
# Younger windows are rolled up while they fill, and again: their minutes are read instead.
SETTLED_AFTER = timedelta(minutes=20)
# A day less than the finer steps are kept: what is older is read from the next.
KEPT = ((MINUTE_S, timedelta(days=2)), (ROLLUP_S, timedelta(days=13)))
EPOCH = datetime.fromtimestamp(0, UTC)


class TierRange(NamedTuple):
    """A stretch [start, end) that is read at one step."""

    step_s: int
    start: datetime
    end: datetime


def step_floor(moment: datetime, step_s: int) -> datetime:
    """Start of the step that holds a moment; steps are counted from the epoch."""
    seconds = int(moment.timestamp()) // step_s * step_s
    return datetime.fromtimestamp(seconds, UTC)


def parts_by_step(start: datetime, end: datetime, step_s: int) -> Iterator[TierRange]:
    """For points of `step_s`, or of the finest step that is kept for so long."""
    step_s = max(step_s, finest_kept(start))
    start = step_floor(start, step_s)
    written = _written_to()
    for tier_s in COARSEST_FIRST:
        edge = min(end, written[tier_s])
        if step_s % tier_s == 0 and edge > start:
            yield TierRange(tier_s, start, edge)
            start = edge
    if start < end:
        yield TierRange(MINUTE_S, start, end)


def parts_merged(start: datetime, end: datetime, step_s: int) -> Iterator[TierRange]:
    """For one sum over the whole: the same time as `parts_by_step`, in as few rows as possible."""
    start = step_floor(start, max(step_s, finest_kept(start)))
    yield from _cover(start, end, COARSEST_FIRST, _written_to())


def _cover(
    start: datetime, end: datetime, tiers: Sequence[int], written: dict[int, datetime]
) -> Iterator[TierRange]:
    if start >= end:
        return
    if not tiers:
        yield TierRange(MINUTE_S, start, end)
        return
    tier_s, *finer = tiers
    first = step_floor(start + timedelta(seconds=tier_s, microseconds=-1), tier_s)
    last = min(step_floor(end, tier_s), written[tier_s])
    if first >= last:
        yield from _cover(start, end, finer, written)
        return
    yield from _cover(start, first, finer, written)
    yield TierRange(tier_s, first, last)
    yield from _cover(last, end, finer, written)


def finest_kept(start: datetime) -> int:
    """The finest step that is still there of so long ago."""
    age = datetime.now(UTC) - start
    return next((step_s for step_s, kept in KEPT if age <= kept), HOUR_S)


def _written_to() -> dict[int, datetime]:
    """By step, until when its roll-ups are complete, whoever's they are."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT step, telemetry_rollup_last(step),"
            " (SELECT min(at) FROM rollup_retries WHERE step_s <= step AND NOT lost)"
            " FROM unnest(%s::integer[]) AS step",
            [list(COARSEST_FIRST)],
        )
        found: list[tuple[int, datetime | None, datetime | None]] = cursor.fetchall()
    settled = datetime.now(UTC) - SETTLED_AFTER
    return {
        step_s: min(
            (last or EPOCH) + timedelta(seconds=step_s),
            step_floor(settled, step_s),
            step_floor(failed or settled, step_s),
        )
        for step_s, last, failed in found
    }
