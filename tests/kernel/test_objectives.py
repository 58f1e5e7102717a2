"""Which requests count for an objective, and which of them are good."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.kernel.objectives.counting import (
    INDICATORS,
    SHED_CODE,
    IndicatorPart,
    WatchedObjective,
    judge,
)
from controlplane.kernel.spans import ABSENT, INDEX, SPANS, pack_spans
from tests.support.money import ORG_A, ORG_C, PROJECT_A
from tests.support.records import make_record

MS = 1_000
BUCKET = 0


def objective(indicator: str, threshold: int = 0, **changes: Any) -> WatchedObjective:
    fields: dict[str, Any] = {"organization": ORG_A.hex, "id": "o", "version": 1}
    return WatchedObjective(**{**fields, "indicator": indicator, "threshold": threshold, **changes})


def told(indicator: str, threshold: int = 0, **changes: Any) -> bool | None:
    return judge(objective(indicator, threshold), make_record(**changes), BUCKET)


def spans(**durations: int) -> bytes:
    """Only these ran, each from arrival on."""
    by_index = {INDEX[name]: took for name, took in durations.items()}
    starts = [0 if place in by_index else ABSENT for place in range(len(SPANS))]
    return pack_spans(starts, [by_index.get(place, 0) for place in range(len(SPANS))])


@pytest.mark.parametrize(
    ("status", "code", "ttft_us", "good"),
    [
        (200, "", 20, True),
        (503, "server_is_overloaded", -1, False),
        (504, "deadline_exceeded", -1, False),
        (500, "node_lost", 20, False),
        # The client's: its own mistake, its own limits, gone before the first token.
        (400, "bad_request", -1, None),
        (408, "request_timeout", -1, None),
        (429, "rate_limit_exceeded", -1, None),
        (429, "insufficient_quota", -1, None),
        (499, "", -1, None),
        # It left with tokens in hand: we had done our part. Our own capacity's 429 is ours.
        (499, "", 20, True),
        (429, "upstream_rate_limited", -1, False),
        # Kept out on purpose: else the alert would keep itself alive.
        (503, SHED_CODE, -1, None),
    ],
)
def test_availability(status: int, code: str, ttft_us: int, good: bool | None) -> None:
    found = told("availability", status=status, error_code=code, ttft_us=ttft_us)
    assert found is good


def test_the_first_token_of_streams_alone_and_failures_are_late() -> None:
    assert told("ttft", 20 * MS, ttft_us=20 * MS) is True
    assert told("ttft", 20 * MS, ttft_us=20 * MS + 1) is False
    assert told("ttft", 20 * MS, stream=False) is None
    assert told("ttft", 20 * MS, status=503, ttft_us=-1) is False
    assert told("ttft", 20 * MS, status=400, ttft_us=-1) is None


def test_the_mean_between_tokens_of_answers_long_enough_to_tell() -> None:
    assert told("inter_token", 3_500) is True
    assert told("inter_token", 3_499) is False
    assert told("inter_token", 1, output_tokens=15) is None
    # Two tokens at a time: the mean is over tokens, not over chunks.
    assert told("inter_token", 1_750, output_tokens=21, inter_token_us=[3_500] * 10) is True


def test_total_time_of_what_was_served() -> None:
    assert told("total", 90 * MS) is True
    assert told("total", 90 * MS - 1) is False
    assert told("total", 90 * MS, status=503) is False
    assert told("total", 90 * MS, status=404) is None


def test_overhead_is_all_but_inference() -> None:
    took = {"total_us": 90 * MS, "spans": spans(s5_infer=60 * MS)}
    assert told("overhead", 30 * MS, **took) is True
    assert told("overhead", 30 * MS - 1, **took) is False
    assert told("overhead", 30 * MS, spans=spans(s1_admission=MS)) is None


def test_the_share_of_a_prompt_that_was_cached() -> None:
    assert told("cache_hit", 500_000, prompt_tokens=32, cached_tokens=16) is True
    assert told("cache_hit", 500_001, prompt_tokens=32, cached_tokens=16) is False
    assert told("cache_hit", 1, output_tokens=0) is None
    assert told("cache_hit", 1, status=503) is None


def test_a_charge_in_time() -> None:
    assert told("billing_timeliness", 5 * MS, spans=spans(s7_bill=5 * MS)) is True
    assert told("billing_timeliness", 5 * MS - 1, spans=spans(s7_bill=5 * MS)) is False
    assert told("billing_timeliness", 1, spans=spans(s1_admission=MS)) is None
    late = {"status": 503, "error_code": "ledger_unavailable"}
    assert told("billing_timeliness", 60_000 * MS, spans=spans(s7_bill=MS), **late) is False
    # Refused before anything was done: nothing was to be captured.
    assert told("billing_timeliness", MS, spans=spans(s1_admission=MS), **late) is None


def test_a_stages_own_time() -> None:
    assert told("stage:s3_tokenize", MS, spans=spans(s3_tokenize=MS)) is True
    assert told("stage:s3_tokenize", MS - 1, spans=spans(s3_tokenize=MS)) is False
    assert told("stage:s3_tokenize", MS, spans=spans(s1_admission=MS)) is None


@pytest.mark.parametrize(
    ("scope", "counts"),
    [
        ({}, True),
        ({"organization": "0" * 32}, True),
        ({"organization": ORG_C.hex}, False),
        ({"model": "sluice-5m", "route": "direct", "project": PROJECT_A.hex}, True),
        ({"model": "other"}, False),
        ({"route": "other"}, False),
        ({"project": "0" * 32}, False),
        ({"pool": "default", "region": "local"}, True),
        ({"pool": "other"}, False),
        ({"region": "other"}, False),
        ({"prompt_bucket": BUCKET}, True),
        ({"prompt_bucket": 1}, False),
    ],
)
def test_a_scope_takes_its_own_and_no_other(scope: dict[str, Any], counts: bool) -> None:
    found = judge(objective("availability", **scope), make_record(), BUCKET)
    assert found is (True if counts else None)


@pytest.mark.parametrize(
    ("ttft_us", "output", "all_of", "any_of"),
    [
        (20 * MS, 20, True, True),
        (90 * MS, 20, False, True),
        # An answer of few tokens has no pace: the other part decides alone.
        (90 * MS, 2, False, False),
        (20 * MS, 2, True, True),
    ],
)
def test_of_several_parts_those_that_count_decide(
    ttft_us: int, output: int, all_of: bool, any_of: bool
) -> None:
    parts = (IndicatorPart("ttft", 50 * MS), IndicatorPart("inter_token", 5 * MS))
    record = make_record(
        ttft_us=ttft_us, output_tokens=output, inter_token_us=[4 * MS] * (output - 1)
    )
    for indicator, good in (("all_of", all_of), ("any_of", any_of)):
        assert judge(objective(indicator, parts=parts), record, BUCKET) is good
    failed = make_record(status=400, error_code="invalid")
    assert judge(objective("all_of", parts=parts), failed, BUCKET) is None


def test_every_indicator_judges_a_request() -> None:
    threshold = 3_600_000_000
    found = {name: told(name, 1 if name == "cache_hit" else threshold) for name in INDICATORS}
    assert set(found.values()) == {True}
