"""Bars of how many requests there were."""

from datetime import UTC, datetime, timedelta

from controlplane.telemetry.selectors_requests import Volume
from frontend.requests.shares import volume_bars
from frontend.shared.filters import TimeRange

START = datetime(2026, 11, 21, 9, tzinfo=UTC)
HOUR = TimeRange(START, START + timedelta(hours=1), "")


def test_volume_bars_stack_failures_on_top() -> None:
    rows = [Volume(START, 10, 5, 0), Volume(START + timedelta(minutes=30), 5, 0, 2)]
    made = volume_bars(rows, HOUR)
    assert (made.requests, made.failed, made.gone, made.most) == (15, 5, 2, 10)
    first, second = made.bars
    assert (first.ok_top, first.ok_height, first.failed_top, first.failed_height) == (50, 50, 0, 50)
    assert (second.left, second.ok_height) == (50, 50)


def test_no_requests_make_no_bars() -> None:
    assert volume_bars([], HOUR).bars == []
