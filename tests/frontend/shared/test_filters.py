"""Filters of lists and figures: read from the URL, written back, and told where unreadable."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.kernel.ids import public_id
from frontend.shared.filters import (
    Filters,
    TimeRange,
    choices,
    filters_from,
    place_from,
    request_filter,
    segment_from,
)

START = datetime(2026, 11, 21, 9, tzinfo=UTC)
HOUR = TimeRange(START, START + timedelta(hours=1), "")
ONE = "1" * 32


def test_filters_read_the_url_and_write_it_back() -> None:
    key = uuid.uuid4()
    query = {"model": "tiny", "project": public_id("proj", key), "key": public_id("key", key),
             "status": "failed", "stream": "no", "min_ms": "250"}  # fmt: skip
    filters, complaint = filters_from({**query, "range": "1h"})
    assert (filters.given, complaint) == (query, "")
    assert filters_from({**query, "project": key.hex, "key": str(key)}) == (filters, "")
    wanted = request_filter(filters, uuid.UUID(int=1), HOUR)
    assert (wanted.key, wanted.stream, wanted.total_us_min) == (key, False, 250_000)
    assert wanted.project == key
    assert segment_from(query)[0].given == {"model": "tiny", "project": public_id("proj", key)}


@pytest.mark.parametrize(
    "query",
    [{"key": "x"}, {"key": f"proj_{ONE}"}, {"status": "teapot"}, {"finish": "'"},
     {"stream": "maybe"}, {"min_ms": "-1"}, {"min_ms": "1e9"}, {"min_ms": "86400001"},
     {"min_ms": "9" * 5_000}, {"min_ms": "²"}, {"project": "web"},
     {"model": "a\0b"}, {"model": "m" * 101}],
)  # fmt: skip
def test_a_filter_that_cannot_be_read_is_left_out_and_told(query: dict[str, str]) -> None:
    filters, complaint = filters_from({**query, "status": query.get("status", "ok")})
    assert filters == (Filters() if "status" in query else Filters(status="ok"))
    (value,) = query.values()
    assert complaint.startswith("Ignored because invalid: ")
    assert f"“{value[:40]}”" in complaint


def test_a_place_in_the_list_that_cannot_be_read_is_told() -> None:
    known = uuid.uuid4()
    assert place_from({"before": known.hex, "after": ""}) == ({"before": known}, "")
    assert place_from({"after": "x"}) == ({}, "Ignored because invalid: after “x”.")


def test_a_list_offers_what_the_url_asks_for() -> None:
    assert choices([("a", "A")], "a") == choices([("a", "A")], "") == [("a", "A")]
    assert choices([("a", "A")], "gone") == [("a", "A"), ("gone", "gone")]
