"""Roll-ups lose nothing: every tier equals the direct merge of all minutes."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from random import Random

import psycopg

from controlplane.kernel.histogram import Histogram
from controlplane.telemetry import rollups, services
from controlplane.telemetry.tiers import parts_merged, step_floor
from tests.support.money import ALICE_KEY, ORG_A, PROJECT_A, dsn, rows

EVERYONE = uuid.UUID(int=0)
NOW = datetime.now(UTC).replace(minute=47, second=10, microsecond=0)


def write_minute(minute: datetime, writer: uuid.UUID, histogram: Histogram, requests: int) -> None:
    seconds = int(minute.timestamp()) // 60 * 60
    with psycopg.connect(dsn(), autocommit=True) as gateway:
        gateway.execute(
            "SELECT telemetry_merge(%s, %s, %s, %s, %s, %s, %s::smallint[], %s::smallint[], %s)",
            [
                writer,
                [seconds],
                [EVERYONE],
                [EVERYONE],
                ["total"],
                ["\x1f".join(("sluice-5m", "", "default", ""))],
                [-1],
                [-1],
                [histogram.to_bytes().hex()],
            ],
        )
        gateway.execute(
            "SELECT telemetry_count(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [
                writer,
                [seconds],
                [ORG_A],
                [PROJECT_A],
                [ALICE_KEY],
                ["sluice-5m"],
                ["direct"],
                ["default"],
                [f"{{{requests},0,0,1,2,3,4,5,6}}"],
            ],
        )


def fill(random: Random) -> tuple[Histogram, int]:
    everything = Histogram()
    total = 0
    for age in range(0, 100, 3):
        for writer in (uuid.UUID(int=1), uuid.UUID(int=2)):
            histogram = Histogram()
            for _ in range(random.randint(1, 20)):
                histogram.record(random.randint(0, 3_000_000))
            write_minute(NOW - timedelta(minutes=age), writer, histogram, histogram.count)
            everything.merge(histogram)
            total += histogram.count
    return everything, total


def merged(step_s: int) -> Histogram:
    made = Histogram()
    for (data,) in rows("SELECT data FROM histogram_rollups WHERE step_s = %s", step_s):
        made.merge(Histogram.from_bytes(data))
    return made


def test_every_tier_equals_the_direct_merge(database: str) -> None:
    everything, total = fill(Random(5))
    rollups.roll_up(NOW)
    for tier in rollups.TIERS:
        assert merged(tier.step_s).to_bytes() == everything.to_bytes()
        found = rows(
            "SELECT pool, sum(requests)::int, sum(nano)::int FROM usage_rollups WHERE step_s = %s"
            " GROUP BY pool",
            tier.step_s,
        )
        assert found == [("default", total, 34 * 2 * 4)]


def test_late_minutes_are_taken_in_and_repeats_change_nothing(database: str) -> None:
    everything, total = fill(Random(6))
    rollups.roll_up(NOW)
    late = Histogram()
    late.record(77)
    write_minute(NOW - timedelta(minutes=8), uuid.UUID(int=3), late, 1)
    everything.merge(late)
    for _ in range(2):
        rollups.roll_up(NOW + timedelta(minutes=1))
    for tier in rollups.TIERS:
        assert merged(tier.step_s).to_bytes() == everything.to_bytes()
    assert rows("SELECT sum(requests)::int FROM usage_rollups WHERE step_s = 86400") == [
        (total + 1,)
    ]


def test_partitions_are_made_ahead_and_dropped_behind(database: str) -> None:
    assert services.make_partitions() == 0
    later = datetime.now(UTC) + timedelta(days=40)
    assert services.make_partitions(later) == 27
    before = _days("request_records")
    # Names of other tables and indexes may end with digits that are no day.
    rows("CREATE TABLE not_a_day_87960889 ()")
    services.drop_old_partitions(later)
    assert _days("request_records") < before
    assert max(_days("request_records")) == max(before)
    for _ in range(3):
        services.drop_old_partitions(later)
    oldest = (later - timedelta(days=services.RECORD_DAYS)).strftime("%Y%m%d")
    assert min(_days("request_records")) >= oldest


def test_a_partition_named_otherwise_is_let_be(database: str) -> None:
    name = f"request_records_{min(_days('request_records'))}"
    rows(f"ALTER TABLE {name} RENAME TO request_records_first_1")
    services.drop_old_partitions(datetime.now(UTC) + timedelta(days=400))
    assert "_first_1" in _days("request_records")


def _days(parent: str) -> set[str]:
    names = rows(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = %s::regclass",
        parent,
    )
    return {name[-8:] for (name,) in names}


def spoil(broken: datetime) -> None:
    """PostgreSQL refuses to write the five minutes around a moment."""
    opens = step_floor(broken, 300)
    rows(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'no'; END $$"
    )
    rows(
        "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON histogram_rollups FOR EACH ROW"
        f" WHEN (NEW.step_s = 300 AND NEW.at = '{opens.isoformat()}') EXECUTE FUNCTION refuse()"
    )


def test_a_window_that_fails_stops_no_other_and_is_made_good(database: str) -> None:
    everything, _ = fill(Random(7))
    spoil(NOW - timedelta(minutes=60))
    rollups.roll_up(NOW)
    assert 0 < merged(300).count < everything.count
    later = NOW + timedelta(minutes=20)
    late = Histogram()
    late.record(5)
    write_minute(later, uuid.UUID(int=3), late, 1)
    everything.merge(late)
    rollups.roll_up(later)
    assert rows("SELECT max(at) FROM histogram_rollups WHERE step_s = 300") == [
        (step_floor(later, 300),)
    ]
    behind = rollups.rollups_behind(later)
    assert behind.waiting == 1 and behind.seconds > 3_600
    # What pages read of that time is the minutes themselves.
    failed = step_floor(NOW - timedelta(minutes=60), 300)
    assert all(
        part.step_s == 60 or part.end <= failed
        for part in parts_merged(NOW - timedelta(hours=2), later, 300)
    )
    rows("DROP FUNCTION refuse CASCADE")
    rollups.roll_up(later + timedelta(hours=1))
    for tier in rollups.TIERS:
        assert merged(tier.step_s).to_bytes() == everything.to_bytes()
    assert rollups.rollups_behind(later) == (0.0, 0, 0)


def test_a_window_whose_minutes_are_gone_is_told_as_lost(database: str) -> None:
    fill(Random(8))
    spoil(NOW - timedelta(minutes=60))
    for _ in range(3):
        rollups.roll_up(NOW)
    [(tries,)] = rows("SELECT tries FROM rollup_retries")
    assert tries == 1, "it is tried again only after a while"
    rollups.roll_up(NOW + timedelta(days=rollups.MINUTE_DAYS))
    behind = rollups.rollups_behind(NOW)
    assert (behind.waiting, behind.lost) == (0, 1)


def test_a_row_that_cannot_be_read_costs_its_window_no_other_row(database: str) -> None:
    everything, total = fill(Random(9))
    rows(
        "UPDATE histogram_minutes SET data = '\\x00' WHERE (tableoid, ctid) ="
        " (SELECT tableoid, ctid FROM histogram_minutes WHERE writer = %s LIMIT 1)",
        uuid.UUID(int=1),
    )
    rollups.roll_up(NOW)
    assert 0 < merged(300).count < everything.count
    assert rows("SELECT sum(requests)::int FROM usage_rollups WHERE step_s = 300") == [(total,)]
    assert rollups.rollups_behind(NOW).lost == 1


def test_windows_that_nobody_rolls_up_are_told_by_their_age(database: str) -> None:
    assert rollups.rollups_behind(NOW) == (0.0, 0, 0)
    fill(Random(10))
    oldest = step_floor(NOW - timedelta(minutes=99), 300) + timedelta(seconds=300)
    assert rollups.rollups_behind(NOW).seconds == (NOW - oldest).total_seconds()
    rollups.roll_up(NOW)
    assert rollups.rollups_behind(NOW + timedelta(hours=1)).seconds == 0.0
