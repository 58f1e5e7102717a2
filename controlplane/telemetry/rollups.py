"""Roll-ups from minutes to days. Histograms are merged here, bit for bit, in any order.

One bad window never stops the next: it is told, tried again with growing waits while its source is
kept, and counted as lost after that. Every statement is its own short transaction.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import structlog
from django.db import connection

from controlplane.kernel.histogram import Histogram
from controlplane.telemetry.models import RollupRetry
from controlplane.telemetry.tiers import EPOCH, step_floor

# Late rows and flushes land in a minute that is over: windows this young are rolled up again.
REOPEN = timedelta(minutes=15)
WINDOWS_MAX = 200
MINUTE_DAYS = 3
# A window that fails is tried again after this, then after twice as long, and so on.
RETRY_FIRST = timedelta(minutes=1)
RETRY_MAX = timedelta(hours=1)
DOUBLINGS_MAX = 6
RETRIES_PER_RUN_MAX = 50
LOST_TOLD = timedelta(days=14)
PROBLEM_CHARS_MAX = 500

log = structlog.get_logger(__name__)


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
_BY_STEP = {tier.step_s: tier for tier in TIERS}
_BY_SOURCE = {tier.source_s: tier for tier in TIERS}
_SOURCE_DAYS = {60: MINUTE_DAYS} | {tier.step_s: tier.keep_days for tier in TIERS}


class Behind(NamedTuple):
    """How far roll-ups are behind: seconds since the oldest window that is over and not rolled up
    ended, windows that wait to be tried again, and windows that lack something for good.
    """

    seconds: float
    waiting: int
    lost: int


def roll_up(now: datetime | None = None) -> int:
    """Bring every tier up to date, within a bound of windows; returns the windows written."""
    moment = now or datetime.now(UTC)
    RollupRetry.objects.filter(lost=True, at__lt=moment - LOST_TOLD).delete()
    # Shorter windows first: what is mended there goes into the longer ones of the same run.
    return sum(_roll_tier(tier, moment) + _roll_due(tier, moment) for tier in TIERS)


def rollups_behind(now: datetime | None = None) -> Behind:
    moment = now or datetime.now(UTC)
    retries = list(RollupRetry.objects.order_by("at"))
    ends = [_end(_BY_STEP[each.step_s], each.at) for each in retries if not each.lost]
    for tier in TIERS:
        last = _last(tier)
        found = _next(tier, EPOCH if last is None else last + timedelta(seconds=tier.step_s))
        if found is not None:
            ends.append(_end(tier, step_floor(found, tier.step_s)))
    seconds = max(((moment - end).total_seconds() for end in ends), default=0.0)
    return Behind(max(0.0, seconds), sum(not r.lost for r in retries), sum(r.lost for r in retries))


def _roll_tier(tier: Tier, now: datetime) -> int:
    retries = RollupRetry.objects.filter(step_s=tier.step_s, lost=False)
    failed = set(retries.values_list("at", flat=True))
    past = [*failed, *filter(None, [_last(tier)])]
    # An open window is rolled up too, with what is in it so far, and again at the next run.
    cursor, written = min(max(past), now - REOPEN) if past else EPOCH, 0
    for _ in range(WINDOWS_MAX):
        found = _next(tier, step_floor(cursor, tier.step_s))
        if found is None:
            break
        opens = step_floor(found, tier.step_s)
        cursor = _end(tier, opens)
        done = _roll_kept(tier, opens, now)
        written += done
        if done and opens in failed:
            _mended(tier, opens, now)
    return written


def _roll_kept(tier: Tier, opens: datetime, now: datetime) -> bool:
    """Roll one window up; False where it failed, which is told and noted."""
    try:
        unreadable = _roll_window(tier, opens, _end(tier, opens))
    except Exception as error:  # Process edge: whatever is wrong with one, the others go on.
        _failed(tier, opens, now, error)
        return False
    if unreadable:
        log.error("rollup_rows_unreadable", step_s=tier.step_s, at=str(opens), rows=unreadable)
        _note(tier, opens, now, problem=f"{unreadable} rows cannot be read", lost=True)
    return True


def _failed(tier: Tier, opens: datetime, now: datetime, error: Exception) -> None:
    # Where the database is down this fails, too, and the whole run is repeated.
    connection.close_if_unusable_or_obsolete()
    retry = _note(tier, opens, now, problem=str(error)[:PROBLEM_CHARS_MAX])
    retry.due_at = now + min(RETRY_MAX, RETRY_FIRST * 2 ** min(retry.tries, DOUBLINGS_MAX))
    retry.tries += 1
    retry.save()
    log.error("rollup_failed", step_s=tier.step_s, at=str(opens), tries=retry.tries, exc_info=error)


def _roll_due(tier: Tier, now: datetime) -> int:
    """Try windows again whose time has come."""
    due = RollupRetry.objects.filter(step_s=tier.step_s, lost=False, due_at__lte=now)
    return sum(_try_again(retry, now) for retry in due.order_by("at")[:RETRIES_PER_RUN_MAX])


def _try_again(retry: RollupRetry, now: datetime) -> bool:
    tier = _BY_STEP[retry.step_s]
    if retry.at < now - timedelta(days=_SOURCE_DAYS[tier.source_s]):
        log.error("rollup_lost", step_s=tier.step_s, at=str(retry.at), problem=retry.problem)
        RollupRetry.objects.filter(pk=retry.pk).update(lost=True)
        return False
    done = _roll_kept(tier, retry.at, now)
    if done:
        _mended(tier, retry.at, now)
    return done


def _mended(tier: Tier, opens: datetime, now: datetime) -> None:
    """Forget a failure; the longer window that lacks this one is rolled up again."""
    RollupRetry.objects.filter(step_s=tier.step_s, at=opens, lost=False).delete()
    longer = _BY_SOURCE.get(tier.step_s)
    last = None if longer is None else _last(longer)
    if longer is not None and last is not None and opens < _end(longer, last):
        _note(longer, step_floor(opens, longer.step_s), now, problem="a shorter window was mended")


def _note(
    tier: Tier, opens: datetime, now: datetime, *, problem: str, lost: bool = False
) -> RollupRetry:
    retry, _ = RollupRetry.objects.update_or_create(
        step_s=tier.step_s,
        at=opens,
        defaults={"problem": problem, "lost": lost},
        create_defaults={"problem": problem, "lost": lost, "due_at": now, "tries": 0},
    )
    return retry


def _end(tier: Tier, opens: datetime) -> datetime:
    return opens + timedelta(seconds=tier.step_s)


def _last(tier: Tier) -> datetime | None:
    return _moment("SELECT telemetry_rollup_last(%s)", [tier.step_s])


def _next(tier: Tier, since: datetime) -> datetime | None:
    return _moment("SELECT telemetry_rollup_next(%s, %s)", [tier.source_s, since])


def _moment(query: str, values: list[Any]) -> datetime | None:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        found: datetime | None = cursor.fetchone()[0]
        return found


def _roll_window(tier: Tier, opens: datetime, closes: datetime) -> int:
    """Write one window; returns how many rows of its source had to be left out."""
    unreadable = 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT * FROM telemetry_rollup_read(%s, %s, %s)", [tier.source_s, opens, closes]
        )
        merged: dict[tuple[Any, ...], Histogram] = {}
        for *parts, data in cursor.fetchall():
            try:
                merged.setdefault(tuple(parts), Histogram()).add_bytes(data)
            except ValueError:
                unreadable += 1
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
    return unreadable
