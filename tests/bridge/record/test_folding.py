"""Folding requests many at a time: the same histograms, bit for bit, as recording one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import ceil, log2

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.bridge.record.exemplars import EXEMPLAR_MEASURES
from controlplane.bridge.record.measured import SHED_CODES, codes_of
from controlplane.bridge.record.series import (
    ALL_MODELS,
    EVERYONE,
    FOLDED_AT_ONCE,
    Minute,
    SeriesKey,
)
from controlplane.gateway.ports import FinishedRequest
from controlplane.kernel.histogram import BUCKETS_PER_OCTAVE, Histogram
from controlplane.kernel.measures import (
    CANCELLED,
    FINISH_EVENTS,
    FINISH_OTHER,
    LAYERS,
    OWN_MEASURES,
    PHASES,
    RETRIED,
    SHED,
    STAGE_NAMES,
    prompt_bucket,
)
from controlplane.kernel.spans import ABSENT, SPANS, pack_spans, unpack_spans
from controlplane.kernel.statuses import CLIENT_LEFT
from tests.support.records import make_record

Sheets = dict[SeriesKey, dict[str, Histogram]]

BITS = 63
TIMES = st.one_of(
    st.integers(0, 70_000),
    st.integers(0, 2**31 - 1),
    st.integers(0, 30).map(lambda power: 2**power),
)
GAPS = st.lists(st.one_of(st.integers(-2, 70_000), st.integers(0, 2**40)), max_size=6)


@st.composite
def requests(draw: st.DrawFn) -> FinishedRequest:
    """Of few names, so that they meet, and of any times."""
    starts, times = [ABSENT] * len(SPANS), [0] * len(SPANS)
    for span in SPANS:
        if draw(st.booleans()):
            starts[span.index], times[span.index] = draw(st.integers(0, 9)), draw(TIMES)
    return make_record(
        project=draw(st.sampled_from(("a" * 32, "b" * 32))),
        model=draw(st.sampled_from(("", "small", "large"))),
        route=draw(st.sampled_from(("", "direct"))),
        pool=draw(st.sampled_from(("", "fast", "slow"))),
        region=draw(st.sampled_from(("", "eu"))),
        status=draw(st.sampled_from((200, 429, 503, CLIENT_LEFT))),
        error_code=draw(st.sampled_from(("", "odd", *sorted(SHED_CODES)))),
        finish=draw(st.sampled_from(("", "stop", "odd"))),
        prompt_tokens=draw(st.sampled_from((0, 256, 257, 70_000))),
        output_tokens=draw(st.integers(0, 300)),
        total_us=draw(st.one_of(TIMES, st.integers(-1, 2**50))),
        ttft_us=draw(st.one_of(st.just(-1), TIMES)),
        inter_token_us=draw(GAPS),
        client_rtt_us=draw(st.one_of(st.just(-1), TIMES)),
        retries=draw(st.integers(0, 2)),
        spans=pack_spans(starts, times),
    )


def values(record: FinishedRequest) -> Iterator[tuple[str, int]]:
    """What one request measures, one value at a time."""
    times = {}
    for span, (start, us) in zip(SPANS, unpack_spans(record.spans), strict=True):
        times[span.name] = us
        name = PHASES.get(span.name, span.name)
        if start != ABSENT:
            yield name, us
    total, gaps = max(0, record.total_us), [max(0, us) for us in record.inter_token_us]
    yield "total", total
    yield "overhead", max(0, total - times["s5_infer"])
    yield "unattributed", max(0, total - sum(times[name] for name in STAGE_NAMES))
    if record.ttft_us >= 0:
        yield "ttft", record.ttft_us
    if record.client_rtt_us >= 0:
        yield "client_rtt", record.client_rtt_us
    yield from (("inter_token", us) for us in gaps)
    if sum(gaps) > 0 and record.output_tokens > 1:
        yield "tokens_per_s", (record.output_tokens - 1) * 10**9 // sum(gaps)
    if record.status == CLIENT_LEFT:
        yield CANCELLED, 1
    elif record.error_code in SHED_CODES:
        yield SHED, 1
    if record.finish:
        yield FINISH_EVENTS.get(record.finish, FINISH_OTHER), 1
    yield from [(RETRIED, 1)] * record.retries


def recorded(records: list[FinishedRequest]) -> Sheets:
    """One value after the other, into each of a request's series."""
    found: Sheets = defaultdict(lambda: defaultdict(Histogram))
    for r in records:
        narrow = [
            SeriesKey(model=r.model, prompt_bucket=prompt_bucket(r.prompt_tokens)),
            SeriesKey(model=r.model, status_class=r.status // 100),
        ]
        narrow += [SeriesKey(model=r.model, route=r.route)] if r.route else []
        narrow += [SeriesKey(model=r.model, pool=r.pool)] if r.pool else []
        narrow += [SeriesKey(model=r.model, region=r.region)] if r.region else []
        models = {r.model, ALL_MODELS}
        own = [SeriesKey(r.organization, p, m) for p in (r.project, EVERYONE) for m in models]
        for name, value in values(r):
            keys = [SeriesKey(model=model) for model in models]
            keys += narrow if name not in LAYERS else []
            keys += own if name in OWN_MEASURES else []
            for key in keys:
                found[key][name].record(value)
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=8), st.sets(st.integers(0, 7)))
def test_folding_is_recording_one_by_one(records: list[FinishedRequest], cuts: set[int]) -> None:
    minute = Minute(0)
    for number, record in enumerate(records):
        minute.add(record)
        if number in cuts:
            minute.fold(narrow=False)
    minute.fold_all()
    found = {key: sheet.histograms() for key, sheet in minute.sheets.items()}
    expected = recorded(records)
    assert found == {key: dict(sheet) for key, sheet in expected.items()}
    assert minute.dirty == set(expected)


@settings(max_examples=15, deadline=None)
@given(st.lists(requests(), min_size=1, max_size=8))
def test_the_first_request_of_an_octave_stands_for_it(records: list[FinishedRequest]) -> None:
    minute = Minute(0)
    for record in records:
        minute.add(record)
    minute.fold_all()
    expected: dict[tuple[str, ...], tuple[int, bytes]] = {}
    for r in records:
        for name, us in values(r):
            if us and name in EXEMPLAR_MEASURES:
                key = (r.organization, r.project, r.model, name, str(us.bit_length()))
                expected.setdefault(key, (us, r.request))
    found = {
        (*each.owner, each.measure, str(each.octave)): (each.value_us, each.request)
        for each in minute.exemplars
    }
    assert found == expected
    assert len(minute.exemplars) == len(found)


def test_codes_are_a_histograms_buckets_at_every_edge() -> None:
    near = {0, 1, 2**BITS - 1}
    for index in range(BITS * BUCKETS_PER_OCTAVE):
        edge = int(2.0 ** (index / BUCKETS_PER_OCTAVE))
        # Beyond 2^48 a logarithm cannot tell neighbours apart.
        near.update(edge + step * (1 + (edge >> 48)) for step in range(-2, 3))
    tried = sorted(value for value in near if 0 <= value < 2**BITS)
    expected = [1 + ceil(log2(value) * BUCKETS_PER_OCTAVE) if value else 0 for value in tried]
    assert codes_of(np.array(tried, np.int64)).tolist() == expected
    small = np.arange(1, 70_000)
    expected = [1 + ceil(log2(value) * BUCKETS_PER_OCTAVE) for value in small.tolist()]
    assert codes_of(small).tolist() == expected


def test_a_fold_takes_few_requests_at_a_time() -> None:
    minute = Minute(0)
    many = 3 * FOLDED_AT_ONCE
    for number in range(many):
        minute.add(make_record(pool=f"pool-{number}"))
    assert not minute.sheets
    assert [minute.fold(narrow=False) for _ in range(3)] == [True, True, False]
    assert minute.sheets[SeriesKey()].histograms()["total"].count == many
    # Pages watch the model's own and the tenant's live; the others are written later.
    assert SeriesKey() in minute.dirty and minute.unfolded
    assert not any(key.pool for key in minute.dirty)
    assert minute.fold() is False
    assert sum(bool(key.pool) for key in minute.dirty) == many
    assert not minute.unfolded
