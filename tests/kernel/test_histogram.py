"""Histograms: merging is exact, percentiles are near, averages of percentiles are wrong."""

from __future__ import annotations

import random
from itertools import chain
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.histogram import Histogram, merge_all

ERROR_MAX = 0.011
SHARES = (0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
VALUES = st.lists(st.integers(-5, 2**48), max_size=60)


def of(values: list[int]) -> Histogram:
    """A histogram of values."""
    made = Histogram()
    for value in values:
        made.record(value)
    return made


def exact(values: list[int], share: float) -> int:
    """Nearest rank."""
    return sorted(values)[max(1, ceil(share * len(values))) - 1]


def samples(name: str) -> list[int]:
    """Microseconds, as latencies look."""
    rng = random.Random(7)
    if name == "lognormal":
        return [round(rng.lognormvariate(9, 1.5)) + 1 for _ in range(20_000)]
    if name == "bimodal":
        return [round(rng.gauss(*rng.choice([(900, 40), (250_000, 9_000)]))) for _ in range(20_000)]
    return [123_457] * 5_000


@pytest.mark.parametrize("name", ["lognormal", "bimodal", "constant"])
@pytest.mark.parametrize("share", SHARES)
def test_percentiles_are_within_their_error(name: str, share: float) -> None:
    values = samples(name)
    found = of(values).percentile(share)
    assert found is not None
    assert abs(found / exact(values, share) - 1) <= ERROR_MAX


@given(st.lists(VALUES, max_size=5), st.randoms(use_true_random=False))
def test_any_order_of_merging_gives_the_same_bytes(
    parts: list[list[int]], rng: random.Random
) -> None:
    whole = of([value for part in parts for value in part]).to_bytes()
    shuffled = rng.sample(parts, len(parts))
    assert merge_all(map(of, shuffled)).to_bytes() == whole
    pairwise = Histogram()
    for part in parts:
        other = of(part)
        other.merge(pairwise)
        pairwise = other
    assert pairwise.to_bytes() == whole


@given(VALUES)
def test_stored_and_read_back(values: list[int]) -> None:
    made = of(values)
    again = Histogram.from_bytes(made.to_bytes())
    assert again.to_bytes() == made.to_bytes()
    assert again.count == len(values)
    assert again.total == sum(value for value in values if value > 0)


@given(st.integers(1, 2**62))
def test_one_value_is_in_its_bucket(value: int) -> None:
    found = of([value]).percentile(0.5)
    assert found is not None
    assert abs(found / value - 1) <= ERROR_MAX


def test_an_average_of_percentiles_is_wrong() -> None:
    busy, idle = [1_000] * 99 + [900_000], [1_000] * 10_000
    merged = merge_all([of(busy), of(idle)]).percentile(0.995)
    parts = [of(part).percentile(0.995) or 0.0 for part in (busy, idle)]
    average = sum(parts) / len(parts)
    true = exact(busy + idle, 0.995)
    assert merged is not None
    assert abs(merged / true - 1) <= ERROR_MAX
    assert average / true > 400


def test_empty_and_zero() -> None:
    assert Histogram().percentile(0.5) is None
    assert of([0, 0, 5]).percentile(0.5) == 0.0
    assert of([0, 0, 5]).percentile(1.0) == 5


def test_the_share_below_a_value_is_exact_to_its_bucket() -> None:
    found = of([0, 0, 1_000, 10_000])
    shares = [found.share_below(value) for value in (0, 1, 1_000, 5_000, 10_000, 10**9)]
    assert shares == [0.0, 0.5, 0.5, 0.75, 0.75, 1.0]
    assert Histogram.from_bytes(found.to_bytes()).share_below(5_000) == 0.75
    assert Histogram().share_below(5) is None


@pytest.mark.parametrize("data", [b"", b"\x00" * 10, Histogram().to_bytes() + b"x"])
def test_broken_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="histogram"):
        Histogram.from_bytes(data)


@given(st.lists(VALUES, min_size=1, max_size=4), VALUES)
def test_what_was_stored_answers_as_what_was_recorded(
    parts: list[list[int]], more: list[int]
) -> None:
    """Packed rows alone, several of them, and beside values recorded since."""
    one = Histogram.from_bytes(of(parts[0]).to_bytes())
    assert one.percentiles(SHARES) == of(parts[0]).percentiles(SHARES)
    assert one.count == len(parts[0])
    stored = merge_all(Histogram.from_bytes(of(part).to_bytes()) for part in parts)
    for value in more:
        stored.record(value)
    stored.merge(one)
    whole = of([*chain.from_iterable(parts), *more, *parts[0]])
    assert stored.percentiles(SHARES) == whole.percentiles(SHARES)
    assert (stored, stored.count) == (whole, whole.count)


def test_what_the_stored_form_cannot_hold_is_stored_as_the_greatest() -> None:
    endless = Histogram()
    for value in (2**63 - 1, 2**63 - 1, 2**63 - 1, 2**2000):
        endless.record(value)
    merged = merge_all([endless, Histogram({5: 2**32 - 1}), Histogram({5: 7})])
    merged.zeros = 2**40
    stored = Histogram.from_bytes(merged.to_bytes())
    assert (stored.total, stored.maximum) == (2**64 - 1, 2**64 - 1)
    assert (stored.zeros, stored.buckets[5]) == (2**32 - 1, 2**32 - 1)
    again = merge_all([stored, stored])
    assert Histogram.from_bytes(again.to_bytes()).total == 2**64 - 1
