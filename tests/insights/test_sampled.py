"""Peaks and sums over ranges of any length that the worksheet offers."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pytest import MonkeyPatch

from controlplane.insights import sampled
from controlplane.insights.capacity import whole_hours
from controlplane.kernel.histogram import Histogram
from controlplane.telemetry.selectors import Point, SeriesQuery

RAN = 900


@pytest.fixture
def asked(monkeypatch: MonkeyPatch) -> list[SeriesQuery]:
    """What was asked for; every reading finds one step with 3,600 requests, some of which ran."""
    found: list[SeriesQuery] = []

    def read(query: SeriesQuery) -> dict[datetime, Point]:
        found.append(query)
        total, prefill = Histogram(), Histogram()
        for number in range(3_600):
            total.record(1)
            if number < RAN:
                prefill.record(1)
        return {query.start: Point(query.start, {"total": total, "prefill": prefill})}

    def by(query: SeriesQuery, dimension: str) -> dict[str, dict[str, Histogram]]:
        found.append(query)
        return {}

    def whole(query: SeriesQuery) -> dict[str, Histogram]:
        return read(query)[query.start].everyone

    monkeypatch.setattr(sampled, "series_read", read)
    monkeypatch.setattr(sampled, "series_whole", whole)
    monkeypatch.setattr(sampled, "series_by", by)
    return found


@pytest.mark.parametrize("days", [1, 7, 30, 63, 90])
def test_every_range_that_is_offered_can_be_asked_for(asked: list[SeriesQuery], days: int) -> None:
    start, end = whole_hours(days, datetime.now(UTC))
    sampled.peaks(["m"], start, end)
    assert asked[0].start == start and asked[-1].end == end
    sampled.merged_by("pool", ("total",), start, end)
    sampled.batching(["m"], start, end)


def test_a_peak_is_no_finer_than_what_is_kept(asked: list[SeriesQuery]) -> None:
    start, end = whole_hours(14, datetime.now(UTC))
    assert sampled.peaks(["m"], start, end) == (1.0, RAN / 3_600)
    assert {query.step_s for query in asked} == {3_600}
