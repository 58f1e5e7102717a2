"""Numbers, durations and times as pages print them."""

from datetime import UTC, datetime, timedelta

import pytest

from frontend.shared import formats

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value_us", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (4, "0.004 ms"),
        (42, "0.042 ms"),
        (420, "0.420 ms"),
        (1_234, "1.23 ms"),
        (145_000, "145 ms"),
        (999_400, "999 ms"),
        (999_700, "1.00 s"),
        (1_234_567, "1.23 s"),
        (59_940_000, "59.9 s"),
        (59_960_000, "1 min 00 s"),
        (125_000_000, "2 min 05 s"),
        (-2_300, "-2.30 ms"),
    ],
)
def test_a_duration_has_three_digits_and_one_unit(value_us: int | None, text: str) -> None:
    assert formats.duration(value_us) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (987, "987"), (999, "999"), (12_345, "12.3 k"), (999_600, "1.00 M"),
     (1_240_000, "1.24 M"), (5_100_000_000, "5.10 G")],
)  # fmt: skip
def test_a_short_count_keeps_its_size(value: int | None, text: str) -> None:
    assert formats.count_short(value) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "–"), (0, 9, "0 %"), (9, 9, "100 %"), (1, 3, "33.3 %"), (1, 3_000, "0.0333 %")],
)
def test_a_share_of_nothing_is_missing_and_not_zero(part: int, whole: int, text: str) -> None:
    assert formats.percent(part, whole) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(0, "0 a second"), (12.34, "12.3 a second"), (0.5, "30.0 a minute"), (0.01, "36 an hour")],
)
def test_a_rate_is_told_in_a_unit_in_which_it_is_at_least_one(per_second: float, text: str) -> None:
    assert formats.rate_words(per_second) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 s ago"), (90, "1 min ago"), (7_200, "2 h ago"), (86_400, ""), (-90, "in 1 min")],
)
def test_relative_time_ends_at_a_day(seconds: int, text: str) -> None:
    assert formats.relative(NOW - timedelta(seconds=seconds), NOW) == text


def test_percentiles_of_few_values_are_marked() -> None:
    assert [formats.few(95, 19), formats.few(95, 20)] == [True, False]
    assert [formats.few(99, 99), formats.few(99, 100)] == [True, False]
