"""The Recorder port on a real PostgreSQL: rows, series, bounds."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import psycopg
import pytest

from controlplane.bridge import recorder as recorder_module
from controlplane.bridge import series
from controlplane.bridge.recorder import PostgresRecorder
from controlplane.bridge.series import MEASURES, OTHER, Depth, Minute
from controlplane.gateway.nodes.drafts import Drafts
from controlplane.kernel.gauges import DRAFTS, GAUGES
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.spans import unpack_spans
from controlplane.kernel.statuses import CLIENT_LEFT
from controlplane.telemetry.selectors import FIGURES
from tests.support.money import dsn, eventually, rows, superuser_dsn
from tests.support.records import make_record

EVERYONE = uuid.UUID(int=0)
WAITING = (
    "SELECT count(*)::int FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@pytest.fixture
async def recorder(database: str) -> AsyncIterator[PostgresRecorder]:
    made = PostgresRecorder(dsn())
    made.start()
    yield made
    await made.close()


def counted(measure: str) -> int:
    """Values in all stored histograms of a measure: each request is in two, all's and its own."""
    found = rows("SELECT data FROM histogram_minutes WHERE measure = %s", measure)
    return sum(Histogram.from_bytes(data).count for (data,) in found)


async def test_a_row_comes_back_as_it_was(recorder: PostgresRecorder) -> None:
    record = make_record(
        error_code='quote " back \\ comma , {brace}', region="Zürich", stream=False
    )
    recorder.record(record)
    assert await recorder.flush()
    found = rows(
        "SELECT request, error_code, region, stream, status, ttft_us, cost_nano, spans, receipt,"
        " (extract(epoch FROM started_at) * 1000000)::bigint, model, safety FROM request_records"
    )
    assert found == [
        (
            uuid.UUID(bytes=record.request),
            record.error_code,
            record.region,
            False,
            200,
            20_000,
            96,
            record.spans,
            record.receipt,
            record.started_us,
            "sluice-5m",
            "",
        )
    ]
    assert unpack_spans(found[0][7])[0] == (0, 100)


async def test_series_of_all_measures_and_of_the_project(recorder: PostgresRecorder) -> None:
    for total_us in (10_000, 20_000, 40_000):
        recorder.record(make_record(total_us=total_us))
    assert await recorder.flush()
    found = {
        (project, measure): Histogram.from_bytes(data)
        for project, measure, data in rows("SELECT project, measure, data FROM histogram_minutes")
    }
    assert {measure for project, measure in found if project == EVERYONE} == set(MEASURES)
    assert {m for p, m in found if p != EVERYONE} == {"total", "ttft", "inter_token"}
    total = found[EVERYONE, "total"]
    assert (total.count, total.maximum, total.total) == (3, 40_000, 70_000)
    assert found[EVERYONE, "inter_token"].count == 57
    assert found[EVERYONE, "tokens_per_s"].percentile(0.5) == pytest.approx(285_714, rel=0.011)
    usage = rows(f"SELECT {', '.join(FIGURES)} FROM usage_minutes")
    assert usage == [(3, 0, 0, 42, 48, 60, 288, 72, 60)]


async def test_a_projects_series_are_kept_by_model(recorder: PostgresRecorder) -> None:
    for name in ("small", "large", "large"):
        recorder.record(make_record(model=name))
    assert await recorder.flush()
    query = "SELECT model, data FROM histogram_minutes WHERE project <> %s AND measure = 'total'"
    found = {name: Histogram.from_bytes(data).count for name, data in rows(query, EVERYONE)}
    assert found == {"small": 1, "large": 2}


async def test_a_client_that_left_is_counted_apart_from_errors(recorder: PostgresRecorder) -> None:
    for status in (200, CLIENT_LEFT, CLIENT_LEFT, 503):
        recorder.record(make_record(status=status))
    assert await recorder.flush()
    assert rows("SELECT requests, errors, gone FROM usage_minutes") == [(4, 1, 2)]


async def test_samples_of_one_minute_are_one_series_a_model(recorder: PostgresRecorder) -> None:
    recorder.sample([Depth("", 2, 1), Depth("small", 2, 1)])
    recorder.sample([Depth("", 0, 0), Depth("small", 0, 0)])
    assert await recorder.flush()
    query = "SELECT model, measure, data FROM histogram_minutes"
    found = {(name, measure): Histogram.from_bytes(data) for name, measure, data in rows(query)}
    assert set(found) == {(name, measure) for name in ("", "small") for measure in GAUGES}
    both = found["small", "waiting"]
    assert (both.total, both.maximum, both.count) == (3, 3, 2)


async def test_drafts_of_one_minute_add_up_by_model_and_together(
    recorder: PostgresRecorder,
) -> None:
    recorder.sample([Depth("small", 0, 0)])
    recorder.drafts([Drafts("small", 8, 0), Drafts("large", 4, 4)])
    recorder.drafts([Drafts("small", 3, 2)])
    assert await recorder.flush()
    query = "SELECT model, measure, data FROM histogram_minutes WHERE measure = ANY(%s)"
    found = {
        (name, measure): Histogram.from_bytes(data).total
        for name, measure, data in rows(query, list(DRAFTS))
    }
    assert found == {
        ("", "drafted"): 15, ("", "accepted"): 6, ("small", "drafted"): 11,
        ("small", "accepted"): 2, ("large", "drafted"): 4, ("large", "accepted"): 4,
    }  # fmt: skip


async def test_a_second_flush_replaces_the_first(recorder: PostgresRecorder) -> None:
    for _ in range(2):
        recorder.record(make_record())
        assert await recorder.flush()
    assert counted("total") == 4
    assert rows("SELECT sum(requests)::int FROM usage_minutes") == [(2,)]


async def test_closing_waits_for_the_batch_in_flight_and_writes_all_once(database: str) -> None:
    """A clean stop while PostgreSQL is slow to answer loses nothing and repeats nothing."""
    recorder = PostgresRecorder(dsn())
    recorder.start()
    records = [make_record() for _ in range(3)]
    with psycopg.connect(superuser_dsn()) as other:
        # Written last: with it in flight every queue is empty.
        other.execute("LOCK TABLE histogram_minutes")
        for record in records:
            recorder.record(record)
        closing = asyncio.create_task(recorder.close())
        await eventually(lambda: rows(WAITING) == [(1,)])
        done, _ = await asyncio.wait({closing}, timeout=10 * recorder_module.DRAIN_POLL_S)
        assert not done
        other.rollback()
        await asyncio.wait_for(closing, recorder_module.DRAIN_S)
    written = rows("SELECT request FROM request_records ORDER BY request")
    assert written == sorted((uuid.UUID(bytes=record.request),) for record in records)
    assert rows("SELECT sum(requests)::int FROM usage_minutes") == [(3,)]
    assert counted("total") == 2 * len(records)
    assert recorder.dropped == 0


async def test_the_queue_is_bounded_and_counts_what_it_drops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder_module, "QUEUE_MAX", 3)
    away = PostgresRecorder("host=/nonexistent dbname=none")
    away.start()
    records = [make_record() for _ in range(5)]
    for record in records:
        away.record(record)
    assert away.dropped == 2
    await asyncio.wait_for(away.close(), recorder_module.DRAIN_S + 5)


async def test_one_row_that_postgresql_refuses_takes_no_other_with_it(
    recorder: PostgresRecorder,
) -> None:
    """There is no partition for a request of 1970."""
    good = [make_record() for _ in range(7)]
    bad = make_record(request=uuid.UUID(int=7).bytes)
    for record in (*good[:3], bad, *good[3:]):
        recorder.record(record)
    assert await recorder.flush()
    written = rows("SELECT request FROM request_records ORDER BY request")
    assert written == sorted((uuid.UUID(bytes=record.request),) for record in good)
    assert recorder.dropped == 1
    assert recorder.dropped_series == 0


async def test_series_that_postgresql_refuses_are_counted(recorder: PostgresRecorder) -> None:
    rows("ALTER TABLE usage_minutes ADD CONSTRAINT few CHECK (requests < 0) NOT VALID")
    for model in ("one", "two"):
        recorder.record(make_record(model=model))
    assert await recorder.flush()
    assert recorder.dropped_series == 2
    assert recorder.dropped == 0


def test_too_many_series_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "GROUPS_MAX", 2)
    monkeypatch.setattr(series, "COUNTERS_MAX", 2)
    minute = Minute(0)
    for number in range(5):
        minute.add(make_record(model=f"model-{number}"))
    everyone = {key: group for key, group in minute.groups.items() if key[1] == series.EVERYONE}
    models = {key[2] for key in everyone}
    assert models == {"model-0", "model-1", OTHER}
    assert sum(group[len(series.STAGE_NAMES)].count for group in everyone.values()) == 5
    assert sum(counts[0] for counts in minute.usage.values()) == 5
    assert minute.overflowed == 6


def test_gaps_beyond_the_table_are_exact_too() -> None:
    minute = Minute(0)
    gaps = [1, 70_000, 2_000_000]
    minute.add(make_record(inter_token_us=gaps))
    expected = Histogram()
    for gap in gaps:
        expected.record(gap)
    place = MEASURES.index("inter_token")
    group = next(group for key, group in minute.groups.items() if key[1] == series.EVERYONE)
    assert group[place].to_bytes() == expected.to_bytes()
