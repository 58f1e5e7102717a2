"""Peaks and sums over ranges of any length that the worksheet offers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pytest import approx

from controlplane.insights import sampled
from controlplane.insights.capacity import whole_hours
from controlplane.kernel.spans import ABSENT, SPANS, pack_spans
from controlplane.telemetry import rollups
from tests.support.records import make_record
from tests.support.traffic import store

ASKED, RAN = 36, 9
MODEL = "m"
REFUSED = pack_spans([ABSENT] * len(SPANS), [0] * len(SPANS))


@pytest.fixture
def recorded(database: str) -> None:
    """Requests of one minute, of which some ran; all of it rolled up."""
    ran = [make_record(model=MODEL) for _ in range(RAN)]
    refused = [make_record(model=MODEL, status=429, spans=REFUSED) for _ in range(ASKED - RAN)]
    store([*ran, *refused])
    rollups.roll_up()


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("days", "step_s"), [(1, 60), (7, 900), (14, 3_600), (30, 3_600), (63, 3_600), (90, 3_600)]
)
def test_every_range_that_is_offered_finds_the_same_requests(days: int, step_s: int) -> None:
    """A peak is no finer than what is kept; sums know no steps."""
    start, end = whole_hours(days, datetime.now(UTC) + timedelta(hours=1))
    assert sampled.peaks({MODEL: 1.0}, start, end)[:2] == approx((ASKED / step_s, RAN / step_s))
    found = sampled.merged_by("pool", ("total", "prefill"), start, end)
    assert {name: histogram.count for name, histogram in found["default"].items()} == {
        "total": ASKED, "prefill": RAN,
    }  # fmt: skip
    assert sampled.batching([MODEL], start, end) == 1.0
    assert sampled.peaks({"none": 1.0}, start, end) == (0.0, 0.0, 0.0)
