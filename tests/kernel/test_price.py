"""Prices: disjoint buckets, one rounding, and a hold that no charge can exceed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.price import (
    Price,
    PriceTerms,
    TokenCounts,
    charge_nano,
    counts_within,
    hold_nano,
    scaled,
)
from controlplane.kernel.rules import PRIORITY_HIGH, PRIORITY_LOW, PRIORITY_NORMAL

PICO = st.integers(0, 10**9)
TOKENS = st.integers(0, 10**7)
PRICES = st.builds(Price, version=st.just(1), input_pico=PICO, cached_pico=PICO, output_pico=PICO)


@given(price=PRICES, prompt=TOKENS, cached=TOKENS, output=TOKENS, room=TOKENS)
def test_a_hold_covers_every_charge_within_its_bounds(
    price: Price, prompt: int, cached: int, output: int, room: int
) -> None:
    counts = TokenCounts.from_usage(prompt, min(cached, prompt), output)
    assert charge_nano(price, counts) <= hold_nano(price, prompt + room, output + room)


@given(prompt=TOKENS, cached=TOKENS, output=TOKENS)
def test_buckets_are_disjoint(prompt: int, cached: int, output: int) -> None:
    cached = min(cached, prompt)
    counts = TokenCounts.from_usage(prompt, cached, output)
    assert (counts.uncached + counts.cached, counts.cached, counts.output) == (
        prompt,
        cached,
        output,
    )


@pytest.mark.parametrize(
    "usage", [(4, 5, 1), (4, -1, 1), (4, 0, -1), (-1, 0, 0), (2**31, 0, 0), (4, 0, 2**31)]
)
def test_impossible_usage_is_refused(usage: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="usage prompt="):
        TokenCounts.from_usage(*usage)


def test_a_known_bill() -> None:
    price = Price(version=1, input_pico=150_000, cached_pico=75_000, output_pico=600_000)
    counts = TokenCounts(uncached=1000, cached=25, output=150)
    assert charge_nano(price, counts) == 150_000 + 1_875 + 90_000


def test_rounded_once_and_not_per_bucket() -> None:
    price = Price(version=1, input_pico=400, cached_pico=400, output_pico=400)
    assert charge_nano(price, TokenCounts(uncached=1, cached=1, output=1)) == 1


@given(price=PRICES, uncached=TOKENS, cached=TOKENS, output=TOKENS, nano=st.integers(0, 10**12))
def test_cut_counts_cost_no_more_than_the_bound_and_lack_little(
    price: Price, uncached: int, cached: int, output: int, nano: int
) -> None:
    counts = TokenCounts(uncached=uncached, cached=cached, output=output)
    cut = counts_within(price, counts, nano)
    cost = charge_nano(price, cut)
    assert cost <= nano
    assert cut.uncached <= uncached and cut.cached <= cached and cut.output <= output
    if cut == counts:
        assert cost == charge_nano(price, counts)
    else:
        dearest = max(price.input_pico, price.cached_pico, price.output_pico)
        assert cost * 1000 + dearest + 1000 >= nano * 1000


@given(price=PRICES, permille=st.integers(0, 100_000))
def test_a_multiplier_moves_each_rate_by_half_a_unit_at_most(price: Price, permille: int) -> None:
    made = scaled(price, permille)
    assert made.version == price.version
    for was, now in zip(_rates(price), _rates(made), strict=True):
        assert -500 < 1_000 * now - was * permille <= 500
    assert made.cached_pico <= made.input_pico or price.cached_pico > price.input_pico


def _rates(price: Price) -> tuple[int, int, int]:
    return price.input_pico, price.cached_pico, price.output_pico


def test_priority_chooses_the_multiplier() -> None:
    price = Price(version=2, input_pico=101, cached_pico=11, output_pico=1)
    terms = PriceTerms(price=price, batch_permille=500, priority_permille=2_500)
    assert terms.at(PRIORITY_NORMAL) is price
    assert _rates(terms.at(PRIORITY_LOW)) == (51, 6, 1)
    assert _rates(terms.at(PRIORITY_HIGH)) == (253, 28, 3)
