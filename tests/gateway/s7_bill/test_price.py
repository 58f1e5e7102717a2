"""What was delivered is priced by bucket: what the cache had costs its own price."""

from __future__ import annotations

import pytest

from controlplane.gateway.call import Call
from controlplane.gateway.s7_bill.price import price_usage
from controlplane.kernel.price import Price, TokenCounts
from inference.contract.frames import Usage

PRICE = Price(version=1, input_pico=10_000, cached_pico=1_000, output_pico=40_000)


@pytest.mark.parametrize(
    ("cached", "nano"), [(0, 10 * 10 + 3 * 40), (4, 6 * 10 + 4 * 1 + 3 * 40), (10, 10 + 3 * 40)]
)
def test_each_bucket_has_its_price(cached: int, nano: int) -> None:
    usage = Usage(prompt_tokens=10, cached_tokens=cached, completion_tokens=3)
    charge = price_usage(Call([]), PRICE, usage)
    assert charge.counts == TokenCounts(uncached=10 - cached, cached=cached, output=3)
    assert charge.amount_nano == nano
