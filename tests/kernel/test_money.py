"""Money: one rounding, exact text, no float anywhere."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.kernel.money import nano_from_pico, nano_from_usd, usd_short, usd_text

AMOUNT = st.integers(-(10**24), 10**24)
# Of all amounts one in a thousand lies in the middle.
HALVES = st.integers(-(10**21), 10**21).map(lambda nano: 1_000 * nano + 500)


@given(AMOUNT | HALVES)
def test_rounding_is_half_even(pico: int) -> None:
    exact = (Decimal(pico) / 1000).quantize(Decimal(1), rounding=ROUND_HALF_EVEN)
    assert nano_from_pico(pico) == int(exact)


@given(AMOUNT)
def test_text_and_back(nano: int) -> None:
    assert nano_from_usd(usd_text(nano)) == nano


@pytest.mark.parametrize(
    ("nano", "text"),
    [(0, "0.000000000"), (1, "0.000000001"), (-1, "-0.000000001"), (1_500_000_000, "1.500000000")],
)
def test_ledger_text(nano: int, text: str) -> None:
    assert usd_text(nano) == text


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "$0.00"),
        (1_234_567_890_123, "$1,234.57"),
        (-2_000_000_000, "-$2.00"),
        (12_345, "$0.0000123"),
        (1, "$0.00000000100"),
    ],
)
def test_tile_text(nano: int, text: str) -> None:
    assert usd_short(nano) == text


def test_more_than_nine_decimals_is_refused() -> None:
    with pytest.raises(ValueError, match="nine decimals"):
        nano_from_usd("0.0000000001")
