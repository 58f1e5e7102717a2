"""Series and requests as pages read them: merged over writers and tiers, and only one's own."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.bridge.record.series import QueueDepth
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.clock import wall_s
from controlplane.kernel.histogram import Histogram, merge_all
from controlplane.kernel.measures import GAUGES
from controlplane.telemetry import rollups, tiers
from controlplane.telemetry.models import RequestRecord as StoredRequest
from controlplane.telemetry.reading import TooMuchToRead, bounded_read
from controlplane.telemetry.selectors import SeriesQuery, key_last_used, series_read
from controlplane.telemetry.selectors_requests import (
    PAGE_ROWS,
    RequestFilter,
    id_floor,
    request_get,
    request_neighbours,
    request_page,
    request_volume,
)
from tests.support.money import ALICE_KEY, ORG_A, ORG_C, PROJECT_A, dsn, rows
from tests.support.records import make_record

NOW = datetime.now(UTC)
# Read at the start of a run, which may take its time.
LATER = NOW + timedelta(hours=2)
MINUTE = timedelta(minutes=1)
HOUR = RequestFilter(organization=ORG_A, start=NOW - timedelta(hours=1), end=LATER)


def _record(records: list[FinishedRequest]) -> None:
    """Through a recorder of its own, as one gateway process would."""

    async def write() -> None:
        recorder = PostgresRecorder(dsn())
        recorder.start()
        for record in records:
            recorder.record(record)
        assert await recorder.flush()
        await recorder.close()

    asyncio.run(write())


def _query(organization: uuid.UUID = ORG_A, step_s: int = 60) -> SeriesQuery:
    return SeriesQuery(
        organization=organization,
        start=NOW - timedelta(hours=1),
        end=LATER,
        step_s=step_s,
        everyone=("total", "ttft"),
        own=("ttft",),
    )


def _histogram(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


def test_two_writers_present_minute_is_merged_bit_for_bit(database: str) -> None:
    first, second = [10_000, 20_000], [500_000]
    _record([make_record(ttft_us=value) for value in first])
    _record([make_record(ttft_us=value) for value in second])
    points = series_read(_query())
    merged = merge_all(point.everyone["ttft"] for point in points.values())
    assert merged.to_bytes() == _histogram(first + second).to_bytes()
    own = merge_all(point.own["ttft"] for point in points.values())
    assert own.to_bytes() == merged.to_bytes()
    assert sum(point.usage.requests for point in points.values()) == 3
    assert sum(point.usage.cached for point in points.values()) == 48


def test_a_stranger_sees_the_installations_series_and_nobodys_own(database: str) -> None:
    _record([make_record()])
    points = series_read(_query(ORG_C))
    assert sum(point.everyone["total"].count for point in points.values()) == 1
    assert all(not point.own and not point.usage.requests for point in points.values())


def _counted(**changes: object) -> tuple[int, int, int, int]:
    """Requests, clients that left, and values in the own and the installation's histograms."""
    points = series_read(SeriesQuery(**{**vars(_query()), **changes})).values()
    return (
        sum(point.usage.requests for point in points),
        sum(point.usage.gone for point in points),
        sum(point.own["ttft"].count for point in points if point.own),
        sum(point.everyone["total"].count for point in points if "total" in point.everyone),
    )


def test_series_are_narrowed_to_a_model_and_a_project(database: str) -> None:
    other = uuid.uuid4()
    _record([
        make_record(model="small"), make_record(model="large"), make_record(model="large"),
        make_record(model="small", project=other.hex, status=499),
    ])  # fmt: skip
    rollups.roll_up()
    for step_s in (60, 300):
        assert _counted(step_s=step_s) == (4, 1, 4, 4)
        assert _counted(step_s=step_s, model="large") == (2, 0, 2, 2)
        assert _counted(step_s=step_s, project=PROJECT_A) == (3, 0, 3, 4)
        assert _counted(step_s=step_s, project=other, model="small") == (1, 1, 1, 2)
        assert _counted(step_s=step_s, project=other, model="large") == (0, 0, 0, 2)
        assert _counted(step_s=step_s, model="none") == (0, 0, 0, 0)


def test_a_queue_is_read_of_all_models_or_of_one_and_also_where_nobody_asked(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One time for both, or they may be on two sides of five minutes.
    now_s = wall_s()
    monkeypatch.setattr("controlplane.bridge.record.recorder.wall_s", lambda: now_s)

    async def sample() -> None:
        recorder = PostgresRecorder(dsn())
        recorder.start()
        recorder.sample(
            [QueueDepth("", 5, 2), QueueDepth("small", 4, 2), QueueDepth("large", 1, 0)]
        )
        assert await recorder.flush()
        await recorder.close()

    for _ in range(2):
        asyncio.run(sample())

    def read(model: str) -> tuple[int, int]:
        query = SeriesQuery(**{**vars(_query(step_s=300)), "gauges": GAUGES, "model": model})
        (point,) = series_read(query).values()
        return point.everyone["waiting"].total, point.everyone["waiting"].maximum

    for settled_after in (tiers.SETTLED_AFTER, timedelta(hours=-2)):
        monkeypatch.setattr(tiers, "SETTLED_AFTER", settled_after)
        assert (read(""), read("small"), read("large")) == ((14, 7), (12, 6), (2, 1))
        rollups.roll_up()
    assert rows("SELECT count(*) FROM histogram_rollups WHERE step_s = 300") == [(21,)]


@pytest.mark.parametrize("step_s", [60, 300, 900, 3_600])
def test_no_step_loses_or_doubles_a_request(database: str, step_s: int) -> None:
    _record([make_record(ttft_us=1_000 * place) for place in range(1, 21)])
    rollups.roll_up()
    points = series_read(_query(step_s=step_s))
    assert sum(point.usage.requests for point in points.values()) == 20
    assert sum(point.own["ttft"].count for point in points.values()) == 20
    assert all(int(at.timestamp()) % step_s == 0 for at in points)


def test_settled_windows_are_read_from_roll_ups(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _record([make_record() for _ in range(5)])
    rollups.roll_up()
    # As if an hour had passed: the window counts as settled, so its minutes are not read again.
    monkeypatch.setattr(tiers, "SETTLED_AFTER", timedelta(hours=-2))
    points = series_read(_query(step_s=300))
    assert sum(point.usage.requests for point in points.values()) == 5
    assert sum(point.everyone["total"].count for point in points.values()) == 5


def test_a_key_was_last_used_in_this_minute(database: str) -> None:
    _record([make_record()])
    rollups.roll_up()
    used = key_last_used(ORG_A)
    assert NOW - MINUTE - MINUTE < used[ALICE_KEY] < LATER
    assert key_last_used(ORG_C) == {}


def test_a_page_by_key_goes_both_ways(database: str) -> None:
    records = [make_record() for _ in range(PAGE_ROWS * 2 + 1)]
    _record(records)
    newest = sorted((uuid.UUID(bytes=record.request) for record in records), reverse=True)
    first = request_page(HOUR)
    assert [row.request for row in first.rows] == newest[:PAGE_ROWS]
    assert (first.newer, first.older) == (False, True)
    second = request_page(HOUR, before=first.rows[-1].request)
    assert [row.request for row in second.rows] == newest[PAGE_ROWS : 2 * PAGE_ROWS]
    last = request_page(HOUR, before=second.rows[-1].request)
    assert (len(last.rows), last.newer, last.older) == (1, True, False)
    back = request_page(HOUR, after=last.rows[0].request)
    assert [row.request for row in back.rows] == newest[PAGE_ROWS : 2 * PAGE_ROWS]
    assert back.newer


def test_filters_choose_by_every_column(database: str) -> None:
    slow = make_record(total_us=2_000_000)
    failed = make_record(status=503, error_code="server_is_overloaded", finish="")
    limited = make_record(status=429, error_code="rate_limit_exceeded", finish="")
    project = uuid.uuid4()
    elsewhere = make_record(status=499, project=project.hex)
    whole = make_record(stream=False, finish="length", model="other")
    _record([slow, failed, limited, whole, elsewhere])

    def found(**changes: object) -> set[uuid.UUID]:
        fields = {**vars(HOUR), **changes}
        return {row.request for row in request_page(RequestFilter(**fields)).rows}

    named = {"slow": slow, "failed": failed, "limited": limited, "whole": whole}
    named["elsewhere"] = elsewhere
    ids = {name: uuid.UUID(bytes=record.request) for name, record in named.items()}
    assert found(total_us_min=1_000_000) == {ids["slow"]}
    assert found(status="failed") == {ids["failed"], ids["limited"]}
    assert found(status="server") == {ids["failed"]}
    assert found(status="429") == {ids["limited"]}
    assert found(status="ok") == {ids["slow"], ids["whole"]}
    assert found(stream=False) == found(finish="length") == found(model="other") == {ids["whole"]}
    assert found(project=project) == found(status="499") == {ids["elsewhere"]}
    assert found(key=ALICE_KEY) == set(ids.values())
    assert found(key=PROJECT_A) == set()
    assert found(organization=ORG_C) == set()
    assert found(start=NOW - 3 * MINUTE, end=NOW - 2 * MINUTE) == set()


def test_one_request_is_found_by_its_own_organization_only(database: str) -> None:
    record = make_record()
    _record([record])
    request = uuid.UUID(bytes=record.request)
    found = request_get([ORG_A], request, nodes=True)
    assert bytes(found.spans) == record.spans
    assert bytes(found.receipt) == record.receipt
    with pytest.raises(StoredRequest.DoesNotExist):
        request_get([ORG_C], request)


def test_neighbours_keep_to_the_filter(database: str) -> None:
    records = [make_record(status=200 if place % 2 else 503) for place in range(5)]
    _record(records)
    ids = sorted(uuid.UUID(bytes=record.request) for record in records)
    assert request_neighbours(HOUR, ids[2]) == (ids[3], ids[1])
    failed = RequestFilter(**{**vars(HOUR), "status": "failed"})
    failed_ids = sorted(uuid.UUID(bytes=r.request) for r in records if r.status == 503)
    assert request_neighbours(failed, failed_ids[1]) == (failed_ids[2], failed_ids[0])
    assert request_neighbours(HOUR, ids[-1])[0] is None


def test_volume_counts_requests_and_failures_by_step(database: str) -> None:
    _record([make_record(), make_record(status=500), make_record(), make_record(status=499)])
    steps = request_volume(HOUR, 3_600)
    assert sum(step.requests for step in steps) == 4
    assert sum(step.failed for step in steps) == 1
    assert sum(step.gone for step in steps) == 1


def test_a_read_that_takes_too_long_is_given_up(database: str) -> None:
    with pytest.raises(TooMuchToRead), bounded_read([ORG_A], 20):
        list(StoredRequest.objects.raw("SELECT pg_sleep(2), gen_random_uuid() AS request"))


def test_no_id_is_from_before_the_epoch() -> None:
    assert id_floor(datetime(1960, 1, 1, tzinfo=UTC)) == uuid.UUID(int=0)
