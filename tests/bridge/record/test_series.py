"""Series of a minute in memory: bounded, whatever names and times come."""

from __future__ import annotations

import uuid

import pytest

from controlplane.bridge.record import series
from controlplane.bridge.record.exemplars import EXEMPLARS_MAX
from controlplane.bridge.record.series import Minute, SeriesKey
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import MEASURES, PROMPT_BUCKETS, prompt_bucket
from controlplane.kernel.spans import SPANS, pack_spans
from tests.support.records import make_record


def everyone(minute: Minute) -> dict[str, dict[str, Histogram]]:
    """By model, what is kept of all requests."""
    minute.fold_all()
    return {
        key.model: sheet.histograms()
        for key, sheet in minute.sheets.items()
        if key == SeriesKey(model=key.model)
    }


def test_too_many_series_are_in_wider_ones_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "SERIES_MAX", 2 * len(MEASURES))
    monkeypatch.setattr(series, "COUNTERS_MAX", 2)
    minute = Minute(0)
    for number in range(5):
        minute.add(make_record(model=f"model-{number}"))
    found = everyone(minute)
    assert len(found) == 2
    assert found[""]["total"].count == 5
    assert sum(counts[0] for counts in minute.usage.values()) == 5
    assert minute.overflowed > 0


def test_a_minute_of_endless_names_keeps_to_its_bounds() -> None:
    minute = Minute(0)
    for number in range(3_000):
        minute.add(make_record(model=f"model-{number}", project=uuid.uuid4().hex))
        minute.fold()
    minute.fold_all()
    assert sum(sheet.width for sheet in minute.sheets.values()) <= series.SERIES_MAX
    assert len(minute.exemplars) <= EXEMPLARS_MAX
    assert everyone(minute)[""]["total"].count == 3_000


def test_requests_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "WAITING_MAX", 5)
    minute = Minute(0)
    for _ in range(5):
        minute.add(make_record())
    assert not minute.sheets
    minute.add(make_record())
    assert minute.sheets[SeriesKey()].histograms()["total"].count == 6


def test_spans_of_impossible_times_break_nothing() -> None:
    minute = Minute(0)
    spans = pack_spans([0] * len(SPANS), [-5, 2**40, *[1] * (len(SPANS) - 2)])
    minute.add(make_record(spans=spans, total_us=-3, ttft_us=2**50, inter_token_us=[-1, 5]))
    found = everyone(minute)[""]
    assert found["s1_admission"].zeros == found["total"].zeros == found["inter_token"].zeros == 1
    assert found["ttft"].maximum == 2**50


def test_prompts_fall_into_their_buckets() -> None:
    edges = [prompt_bucket(tokens) for bound in PROMPT_BUCKETS for tokens in (bound, bound + 1)]
    assert edges == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
