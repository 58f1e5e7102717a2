"""Explore's reads: any filter and group gives the sums of its own rows, and percentiles of them all
within the sketch's error, whether roll-ups or rows answer.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import pytest
from django.db.models.expressions import RawSQL
from hypothesis import given
from hypothesis import strategies as st

from controlplane.bridge.record.recorder import PostgresRecorder
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.receipt import Receipt, write_receipt
from controlplane.kernel.spans import ABSENT, INDEX, SPANS, pack_spans
from controlplane.telemetry import exploration, explore_rows, rollups
from controlplane.telemetry.exploration import DIMENSIONS, MEASURES, Exploration, Explored
from controlplane.telemetry.explore import explore
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.selectors_requests import RequestFilter
from tests.support.money import ALICE_KEY, BOB_KEY, ORG_A, ORG_C, PROJECT_A, PROJECT_C, dsn, rows
from tests.support.records import make_record
from tests.support.servers import Servers, drop_database, make_database

NOW = datetime.now(UTC)
WANTED = RequestFilter(ORG_A, NOW - timedelta(hours=1), NOW + timedelta(hours=2))
ASK = Exploration(WANTED, (ORG_A,), ("model",), 60)
# As `controlplane/kernel/histogram.py` documents it.
ERROR = 0.0109
SHARES = (0.5, 0.95, 0.99)


def _receipt(template: str, team: str) -> bytes:
    return write_receipt(Receipt(prompt=template, labels={"team": team} if team else {}))


def _spans(prefill_us: int) -> bytes:
    starts, lengths = [ABSENT] * len(SPANS), [0] * len(SPANS)
    for name, took in (("s5_infer", prefill_us + 500), ("s5_infer.prefill", prefill_us)):
        starts[INDEX[name]], lengths[INDEX[name]] = 10, took
    return pack_spans(starts, lengths)


def _made(number: int) -> FinishedRequest:
    """Unlike in every dimension, each at its own rhythm."""
    failed = number % 7 == 0
    return make_record(
        model=("small", "large")[number % 2],
        key=(ALICE_KEY, BOB_KEY)[number % 3 == 0].hex,
        pool=("default", "spare")[number % 5 == 0],
        region=("local", "north")[number % 4 == 0],
        route=("direct", "chat@2")[number % 3 == 1],
        status=503 if failed else 499 if number % 11 == 0 else 200,
        error_code="server_is_overloaded" if failed else "",
        prompt_tokens=(30, 256, 257, 5_000)[number % 4],
        output_tokens=20 + number % 5,
        total_us=10_000 + 997 * number,
        ttft_us=-1 if failed else 1_000 + 31 * number,
        inter_token_us=[2_000 + number],
        user=("", "ann", "bob")[number % 3],
        spans=_spans(1_000 + 100 * number),
        receipt=_receipt(("", "greet@1")[number % 2], ("", "search", "ads")[number % 3]),
    )


@pytest.fixture(scope="module")
def records(servers: Servers) -> Iterator[list[FinishedRequest]]:
    """A's, and one of C's that nobody but C may see."""
    make_database(servers.postgres)
    made = [_made(number) for number in range(120)]
    strange = make_record(organization=ORG_C.hex, project=PROJECT_C.hex, key=uuid.uuid4().hex)

    async def write() -> None:
        recorder = PostgresRecorder(dsn())
        recorder.start()
        for record in (*made, strange):
            recorder.record(record)
        assert await recorder.flush()
        await recorder.close()

    asyncio.run(write())
    rows(
        "UPDATE request_records SET rating = CASE region WHEN 'north' THEN -1"
        " ELSE (pool = 'spare')::integer END WHERE organization = %s",
        ORG_A,
    )
    rollups.roll_up()
    yield made
    drop_database(servers.postgres)


def _of(ask: Exploration, **changes: Any) -> Exploration:
    """The question with filters of requests and others changed."""
    own = {name: changes.pop(name) for name in list(changes) if hasattr(ask, name)}
    return replace(ask, wanted=replace(ask.wanted, **changes), **own)


def _nearest(values: list[int], share: float) -> int:
    return sorted(values)[max(1, ceil(share * len(values))) - 1]


def _check(found: Explored, expected: dict[Any, list[FinishedRequest]]) -> None:
    """Sums exactly, percentiles of the total within the sketch's error."""
    assert {value for value, group in found.groups.items() if group.usage.requests} == {*expected}
    for value, records in expected.items():
        usage, times = found.groups[value].usage, found.groups[value].times
        assert usage.requests == times.count == len(records)
        assert usage.nano == sum(one.cost_nano for one in records)
        assert usage.output == sum(one.output_tokens for one in records)
        assert usage.cached == sum(one.cached_tokens for one in records)
        assert usage.uncached + usage.cached == sum(one.prompt_tokens for one in records)
        assert usage.gone == sum(one.status == 499 for one in records)
        assert usage.errors == sum(one.status == 503 for one in records)
        for share in SHARES:
            exact = _nearest([one.total_us for one in records], share)
            assert times.percentile(share) == pytest.approx(exact, rel=ERROR)


def _grouped(
    records: list[FinishedRequest], key: Callable[[FinishedRequest], tuple[Any, ...]]
) -> dict[Any, list[FinishedRequest]]:
    made: dict[Any, list[FinishedRequest]] = {}
    for one in records:
        made.setdefault(key(one), []).append(one)
    return made


def _team(one: FinishedRequest) -> str:
    return {"": ""}.get(one.user, {"ann": "search", "bob": "ads"}.get(one.user, ""))


def _rating(one: FinishedRequest) -> int:
    return -1 if one.region == "north" else int(one.pool == "spare")


GROUPS: dict[tuple[str, ...], Callable[[FinishedRequest], tuple[Any, ...]]] = {
    ("model",): lambda one: (one.model,),
    ("project", "model"): lambda one: (PROJECT_A, one.model),
    ("key",): lambda one: (uuid.UUID(one.key),),
    ("pool", "region"): lambda one: (one.pool, one.region),
    ("route", "status"): lambda one: (one.route, one.status),
    ("error_code",): lambda one: (one.error_code,),
    ("end_user",): lambda one: (one.user,),
    ("rating",): lambda one: (_rating(one),),
    ("template", "model"): lambda one: ("greet@1" if one.model == "large" else "", one.model),
    ("prompt_bucket",): lambda one: ({30: 0, 256: 0, 257: 1, 5_000: 3}[one.prompt_tokens],),
    ("label",): lambda one: (f'{{"team":"{_team(one)}"}}' if _team(one) else "",),
}


@pytest.mark.parametrize("by", GROUPS)
def test_groups_are_those_of_the_rows(records: list[FinishedRequest], by: tuple[str, ...]) -> None:
    found = explore(_of(ASK, by=by))
    _check(found, _grouped(records, GROUPS[by]))
    assert found.whole.usage.requests == len(records)
    assert (found.rows is None) == (set(by) <= {"project", "model"})


FILTERS: list[tuple[dict[str, Any], Callable[[FinishedRequest], bool]]] = [
    ({"model": "small"}, lambda one: one.model == "small"),
    ({"model": "small", "key": ALICE_KEY},
     lambda one: one.model == "small" and one.key == ALICE_KEY.hex),
    ({"status": "failed", "pool": "spare"}, lambda one: one.status == 503 and one.pool == "spare"),
    ({"region": "north", "end_user": "ann"},
     lambda one: one.region == "north" and one.user == "ann"),
    ({"rating": -1}, lambda one: one.region == "north"),
    ({"prompt_bucket": 1}, lambda one: one.prompt_tokens == 257),
    ({"template": "greet@1"}, lambda one: one.model == "large"),
    ({"label": "team"}, lambda one: _team(one) != ""),
    ({"label": "team", "label_value": "ads"}, lambda one: _team(one) == "ads"),
    ({"label": "te'am\"}", "label_value": "x"}, lambda one: False),
    ({"hours": (0, 24)}, lambda one: True),
    ({"hours": ((NOW.hour + 3) % 24, (NOW.hour + 4) % 24)}, lambda one: False),
    ({"hours": (NOW.hour, (NOW.hour + 3) % 24)}, lambda one: True),
    ({"total_us_max": 50_000, "finish": "stop"}, lambda one: one.total_us <= 50_000),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "wanted"), FILTERS)
def test_filters_leave_out_what_they_say(
    records: list[FinishedRequest],
    changes: dict[str, Any],
    wanted: Callable[[FinishedRequest], bool],
) -> None:
    found = explore(_of(ASK, **changes))
    _check(found, _grouped([one for one in records if wanted(one)], GROUPS["model",]))


def test_rows_and_rollups_say_the_same(records: list[FinishedRequest]) -> None:
    exact = explore(ASK)
    read = explore(_of(ASK, hours=(0, 24)))
    assert exact.rows is None and read.rows == len(records)
    for value, group in exact.groups.items():
        assert read.groups[value].usage.requests == group.usage.requests
        assert read.groups[value].times == group.times


@pytest.mark.parametrize("by", [(one,) for one in DIMENSIONS])
def test_any_dimension_narrows_and_divides_with_any_other(
    records: list[FinishedRequest], by: tuple[str, ...]
) -> None:
    found = explore(_of(ASK, by=(*by, "status"), label="team", hours=(0, 24), region="local"))
    assert found.whole.usage.requests == sum(
        one.region == "local" and _team(one) != "" for one in records
    )


@pytest.mark.parametrize("measure", MEASURES)
def test_times_of_rows_are_those_of_their_spans(
    records: list[FinishedRequest], measure: str
) -> None:
    found = explore(_of(ASK, measure=measure, hours=(0, 24))).whole.times
    exact = {
        "total": [one.total_us for one in records],
        "ttft": [one.ttft_us for one in records if one.ttft_us >= 0],
        "inter_token": [
            (one.total_us - one.ttft_us) // (one.output_tokens - 1)
            for one in records
            if one.ttft_us >= 0
        ],
        "prefill": [1_000 + 100 * number for number in range(len(records))],
        "s5_infer": [1_500 + 100 * number for number in range(len(records))],
        "overhead": [one.total_us - 1_500 - 100 * n for n, one in enumerate(records)],
    }
    exact["unattributed"] = exact["overhead"]
    values = exact.get(measure, [])
    assert found.count == len(values)
    for share in SHARES if values else ():
        assert found.percentile(share) == pytest.approx(_nearest(values, share), rel=ERROR)


def test_what_is_beyond_the_bounds_is_told(
    records: list[FinishedRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explore_rows, "ROWS_MAX", 40)
    monkeypatch.setattr(exploration, "GROUPS_MAX", 1)
    ask = _of(ASK, hours=(0, 24))
    found = explore(ask)
    # Sums stay exact; percentiles are of a part that the same question finds again.
    assert found.whole.usage.requests == len(records)
    assert len(found.groups) == 1 and found.beyond.usage.requests == len(records) // 2
    assert found.rows is not None and 0 < found.rows <= 40
    assert found.rows == found.whole.times.count == explore(ask).rows
    assert explore(ASK).whole.usage.requests == len(records)


def test_no_reading_takes_longer_than_its_bound(
    records: list[FinishedRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explore_rows, "MS_MAX", 20)
    slow = RawSQL("pg_sleep(1)::text", [])
    monkeypatch.setitem(explore_rows._DIMENSIONS, "status", lambda _: slow)
    with pytest.raises(TooMuchToRead):
        explore(_of(ASK, by=("status",)))


def test_nobody_sees_another_organization(records: list[FinishedRequest]) -> None:
    strangers = explore(_of(ASK, organizations=(ORG_C,), by=("organization",), hours=(0, 24)))
    assert [(value, one.usage.requests) for value, one in strangers.groups.items()] == [
        ((ORG_C,), 1)
    ]
    both = (ORG_A, ORG_C)
    for changes in ({}, {"hours": (0, 24)}):
        ask = _of(ASK, organizations=both, by=("organization",), installation=True, **changes)
        found = explore(ask)
        assert {value: one.usage.requests for value, one in found.groups.items()} == {
            (ORG_A,): len(records), (ORG_C,): 1,
        }  # fmt: skip
        assert found.whole.times.count == len(records) + 1


@pytest.mark.parametrize("by", [("model",), ("pool",), ("route", "model"), ("time",)])
def test_the_installations_stages_are_answered_from_rollups(
    records: list[FinishedRequest], by: tuple[str, ...]
) -> None:
    ask = _of(ASK, organizations=(ORG_A, ORG_C), installation=True, by=by, measure="prefill")
    exact, read = explore(ask), explore(_of(ask, hours=(0, 24)))
    assert exact.rows is None and read.rows == len(records) + 1
    assert exact.whole.times == read.whole.times
    assert {value: one.times.to_bytes() for value, one in exact.groups.items()} == {
        value: one.times.to_bytes() for value, one in read.groups.items()
    } or by == ("time",)


@pytest.mark.parametrize("changes", [{"by": ("node",)}, {"measure": "nothing"}])
def test_what_no_one_records_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not one of"):
        _of(ASK, **changes)


@given(
    st.lists(
        st.lists(st.integers(min_value=1, max_value=600_000_000), max_size=40),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(SHARES),
)
def test_merged_percentiles_are_those_of_all_values(parts: list[list[int]], share: float) -> None:
    """However values are split over groups, their merged percentile is that of all of them."""
    merged = Histogram()
    for part in parts:
        one = Histogram()
        for value in part:
            one.record(value)
        merged.add_bytes(one.to_bytes())
    values = [value for part in parts for value in part]
    if not values:
        assert merged.percentile(share) is None
        return
    assert merged.percentile(share) == pytest.approx(_nearest(values, share), rel=ERROR)
