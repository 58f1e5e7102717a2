"""The Recorder port on a real PostgreSQL: rows, series, bounds."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator

import psycopg
import pytest

from controlplane.bridge.record import recorder as recorder_module
from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.series import GaugeSample, Minute, QueueDepth
from controlplane.gateway.nodes.drafts import DraftedTokens
from controlplane.kernel.clock import wall_s
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import (
    DRAFTS,
    EVENTS,
    FINISH_EVENTS,
    GAUGES,
    HEADLINES,
    MEASURES,
    OWN_MEASURES,
    PREEMPTED,
    STAGE_NAMES,
)
from controlplane.kernel.objectives.counting import SHED_CODE
from controlplane.kernel.spans import ABSENT, INDEX, SPANS, pack_spans, unpack_spans
from controlplane.kernel.statuses import CLIENT_LEFT
from controlplane.telemetry.selectors import FIGURES
from tests.support.money import ORG_A, PROJECT_A, dsn, rows, superuser_dsn
from tests.support.records import make_record
from tests.support.waiting import until

EVERYONE = uuid.UUID(int=0)
WAITING = (
    "SELECT count(*)::int FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@pytest.fixture
async def recorder(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresRecorder]:
    # All of a test in one minute, or what it counts may be in two rows.
    now_s = wall_s()
    monkeypatch.setattr(recorder_module, "wall_s", lambda: now_s)
    made = PostgresRecorder(dsn())
    made.start()
    yield made
    await made.close()


def counted(measure: str) -> int:
    """Values in the stored histograms of a measure over everything, and over an organization."""
    found = rows(
        "SELECT data FROM histogram_minutes WHERE measure = %s AND model = '' AND dimension = 0"
        " AND project = %s",
        measure,
        EVERYONE,
    )
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
    query = (
        "SELECT organization, project, model, measure, data FROM histogram_minutes"
        " WHERE dimension = 0"
    )
    found: dict[tuple[object, ...], dict[str, Histogram]] = {}
    for *key, measure, data in rows(query):
        found.setdefault(tuple(key), {})[measure] = Histogram.from_bytes(data)
    everyone = found.pop((EVERYONE, EVERYONE, "sluice-5m"))
    assert set(everyone) == {*MEASURES, FINISH_EVENTS["stop"]}
    total = everyone["total"]
    assert (total.count, total.maximum, total.total) == (3, 40_000, 70_000)
    assert everyone["inter_token"].count == 57
    assert everyone["tokens_per_s"].percentile(0.5) == pytest.approx(285_714, rel=0.011)
    assert (everyone["finish_stop"].count, everyone["finish_stop"].total) == (3, 3)
    assert found.pop((EVERYONE, EVERYONE, "")) == everyone
    own = {name: everyone[name] for name in OWN_MEASURES}
    assert found == {
        (ORG_A, project, model): own
        for project in (PROJECT_A, EVERYONE)
        for model in ("sluice-5m", "")
    }
    usage = rows(f"SELECT {', '.join(FIGURES)} FROM usage_minutes")
    assert usage == [(3, 0, 0, 42, 48, 60, 288, 72, 60)]


async def test_usage_is_counted_by_the_pool_that_served(recorder: PostgresRecorder) -> None:
    for pool, cost_nano in (("fast", 7), ("slow", 5), ("fast", 2)):
        recorder.record(make_record(pool=pool, cost_nano=cost_nano))
    assert await recorder.flush()
    usage = rows("SELECT pool, requests, nano FROM usage_minutes ORDER BY pool")
    assert usage == [("fast", 2, 9), ("slow", 1, 5)]


async def test_series_have_one_dimension_at_a_time(recorder: PostgresRecorder) -> None:
    recorder.record(make_record(pool="fast", region="eu", prompt_tokens=300, status=503))
    recorder.record(make_record(pool="slow", region="", prompt_tokens=300))
    assert await recorder.flush()
    query = (
        "SELECT dimension, route, pool, region, prompt_bucket, status_class, data"
        " FROM histogram_minutes WHERE measure = %s AND dimension > 0"
    )
    found = {tuple(key): Histogram.from_bytes(data).count for *key, data in rows(query, "total")}
    assert found == {
        (1, "direct", "", "", -1, -1): 2,
        (2, "", "fast", "", -1, -1): 1,
        (2, "", "slow", "", -1, -1): 1,
        (3, "", "", "eu", -1, -1): 1,
        (4, "", "", "", 1, -1): 2,
        (5, "", "", "", -1, 5): 1,
        (5, "", "", "", -1, 2): 1,
    }
    assert rows(query, "s3_tokenize.encode") == []
    narrow = {name for (name,) in rows("SELECT DISTINCT measure FROM histogram_minutes"
                                       " WHERE dimension = 2")}  # fmt: skip
    assert narrow == {*HEADLINES, "finish_stop"}


async def test_time_in_no_stage_is_unattributed_and_time_outside_inference_overhead(
    recorder: PostgresRecorder,
) -> None:
    starts, lengths = [ABSENT] * len(SPANS), [0] * len(SPANS)
    for name, us in (("s1_admission", 3_000), ("s5_infer", 20_000), ("s7_bill", 1_000)):
        starts[INDEX[name]], lengths[INDEX[name]] = 0, us
    recorder.record(make_record(total_us=24_500, spans=pack_spans(starts, lengths)))
    recorder.record(make_record(total_us=10, spans=pack_spans(starts, lengths)))
    assert await recorder.flush()
    query = "SELECT data FROM histogram_minutes WHERE measure = %s AND model = '' AND dimension = 0"
    rest, overhead = (
        Histogram.from_bytes(rows(query, name)[0][0]) for name in ("unattributed", "overhead")
    )
    assert (rest.total, rest.maximum, rest.zeros) == (500, 500, 1)
    assert (overhead.total, overhead.maximum, overhead.zeros) == (4_500, 4_500, 1)
    assert rows(query, "s3_tokenize") == []


async def test_what_became_of_requests_is_counted(recorder: PostgresRecorder) -> None:
    for changes in (
        {"finish": "length"}, {"finish": "tool_calls", "retries": 2}, {"finish": "odd"},
        {"status": CLIENT_LEFT, "finish": ""},
        {"status": 503, "error_code": SHED_CODE, "finish": ""},
    ):  # fmt: skip
        recorder.record(make_record(**changes))
    assert await recorder.flush()
    query = (
        "SELECT measure, data FROM histogram_minutes WHERE model = '' AND dimension = 0"
        " AND measure = ANY(%s)"
    )
    found = {name: Histogram.from_bytes(data).total for name, data in rows(query, list(EVENTS))}
    assert found == {
        "finish_length": 1, "finish_tool_calls": 1, "finish_other": 1, "cancelled": 1,
        "shed": 1, "retried": 2,
    }  # fmt: skip


async def test_exemplars_stand_for_octaves_of_a_minute(
    recorder: PostgresRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "EXEMPLARS_PER_CALL_MAX", 3)
    first, same_octave, slower = (make_record(total_us=us) for us in (70_000, 100_000, 200_000))
    for record in (first, same_octave, slower):
        recorder.record(record)
    assert await recorder.flush()
    found = rows("SELECT octave, value_us, request FROM exemplars WHERE measure = 'total'")
    assert sorted(found) == [
        (17, 70_000, uuid.UUID(bytes=first.request)),
        (18, 200_000, uuid.UUID(bytes=slower.request)),
    ]
    measures = {name for (name,) in rows("SELECT measure FROM exemplars")}
    assert measures == {"total", "ttft", *STAGE_NAMES}
    assert rows("SELECT DISTINCT organization, project, model FROM exemplars") == [
        (ORG_A, PROJECT_A, "sluice-5m")
    ]


async def test_a_projects_series_are_kept_by_model(recorder: PostgresRecorder) -> None:
    for name in ("small", "large", "large"):
        recorder.record(make_record(model=name))
    assert await recorder.flush()
    query = "SELECT model, data FROM histogram_minutes WHERE project <> %s AND measure = 'total'"
    found = {name: Histogram.from_bytes(data).count for name, data in rows(query, EVERYONE)}
    assert found == {"small": 1, "large": 2, "": 3}


async def test_a_client_that_left_is_counted_apart_from_errors(recorder: PostgresRecorder) -> None:
    for status in (200, CLIENT_LEFT, CLIENT_LEFT, 503):
        recorder.record(make_record(status=status))
    assert await recorder.flush()
    assert rows("SELECT requests, errors, gone FROM usage_minutes") == [(4, 1, 2)]


async def test_samples_of_one_minute_are_one_series_a_model(recorder: PostgresRecorder) -> None:
    recorder.sample([QueueDepth("", 2, 1), QueueDepth("small", 2, 1)])
    recorder.sample([QueueDepth("", 0, 0), QueueDepth("small", 0, 0)])
    assert await recorder.flush()
    query = "SELECT model, measure, data FROM histogram_minutes"
    found = {(name, measure): Histogram.from_bytes(data) for name, measure, data in rows(query)}
    assert set(found) == {(name, measure) for name in ("", "small") for measure in GAUGES}
    both = found["small", "waiting"]
    assert (both.total, both.maximum, both.count) == (3, 3, 2)


async def test_drafts_of_one_minute_add_up_by_model_and_together(
    recorder: PostgresRecorder,
) -> None:
    recorder.sample([QueueDepth("small", 0, 0)])
    recorder.drafts([DraftedTokens("small", 8, 0), DraftedTokens("large", 4, 4)])
    recorder.drafts([DraftedTokens("small", 3, 2, 5)])
    assert await recorder.flush()
    query = "SELECT model, measure, data FROM histogram_minutes WHERE measure = ANY(%s)"
    found = {
        (name, measure): Histogram.from_bytes(data).total
        for name, measure, data in rows(query, [*DRAFTS, PREEMPTED])
    }
    assert found == {
        ("", "drafted"): 15, ("", "accepted"): 6, ("small", "drafted"): 11,
        ("small", "accepted"): 2, ("large", "drafted"): 4, ("large", "accepted"): 4,
        ("", PREEMPTED): 5, ("small", PREEMPTED): 5,
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
        await until(lambda: rows(WAITING) == [(1,)])
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


async def test_a_series_that_cannot_be_encoded_takes_no_other_with_it(
    recorder: PostgresRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Histogram.to_bytes

    def broken(self: Histogram) -> bytes:
        if self.maximum == 13:
            raise struct.error("argument out of range")
        return whole(self)

    monkeypatch.setattr(Histogram, "to_bytes", broken)
    recorder.note(GaugeSample(f"model-{number}", "", "running", number) for number in range(1, 21))
    assert await recorder.flush()
    found = rows("SELECT model FROM histogram_minutes WHERE measure = 'running'")
    assert {model for (model,) in found} == {f"model-{n}" for n in range(1, 21)} - {"model-13"}
    assert recorder.dropped_series == 1


def test_exemplars_are_written_in_one_order() -> None:
    minute = Minute(0)
    for us in (9_000, 20, 700):
        minute.add(make_record(total_us=us, ttft_us=us))
    minute.fold_all()
    parameters = PostgresRecorder("")._show_call(minute).parameters()
    assert parameters[1] is not None and parameters[3] is not None
    measures = parameters[1].decode().strip("{}").split(",")
    assert measures == sorted(measures) and len(set(measures)) > 1
