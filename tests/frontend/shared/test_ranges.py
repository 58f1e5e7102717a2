"""The time range in the URL, and what becomes of nonsense."""

from datetime import UTC, datetime, timedelta

import pytest

from frontend.shared.filters import DEFAULT, POINTS_MAX, RELATIVE, range_from

NOW = datetime(2026, 11, 21, 9, 30, 20, tzinfo=UTC)


@pytest.mark.parametrize("name", RELATIVE)
def test_a_relative_range_ends_now_and_begins_at_a_whole_minute(name: str) -> None:
    made, complaint = range_from({"range": name}, NOW)
    assert not complaint
    assert made.relative
    assert made.end == NOW
    assert made.start.second == 0
    assert made.query == {"range": name}
    assert made.seconds / made.step_s <= POINTS_MAX + 1


def test_an_absolute_range_is_kept_and_is_utc() -> None:
    made, complaint = range_from({"from": "2026-11-20T10:00", "to": "2026-11-20T12:00"}, NOW)
    assert not complaint
    assert made.start == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert range_from(made.query, NOW)[0] == made


def test_freezing_a_relative_range_gives_the_same_interval() -> None:
    made, _ = range_from({"range": "6h"}, NOW)
    frozen, _ = range_from(made.frozen, NOW)
    assert (frozen.start, frozen.end) == (made.start, made.end)
    assert not frozen.relative


@pytest.mark.parametrize(
    "query",
    [
        {"range": "3 fortnights"},
        {"from": "yesterday", "to": "2026-11-20T12:00"},
        {"from": "2026-11-20T12:00"},
        {"from": "2026-11-20T12:00", "to": "2026-11-20T12:00"},
        {"from": "2026-11-20T12:00", "to": "2026-11-20T10:00"},
        {"from": "2020-11-20T12:00", "to": "2026-11-20T10:00"},
        {"from": "0001-01-01T00:00+14:00", "to": "2026-11-20T10:00"},
    ],
)
def test_nonsense_shows_the_last_hour_and_says_so(query: dict[str, str]) -> None:
    made, complaint = range_from(query, NOW)
    assert made.name == DEFAULT
    assert NOW - made.start < timedelta(minutes=61)
    assert complaint
