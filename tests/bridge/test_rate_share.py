"""Shares of a limit while Redis is away: together never over it, and told exactly on return."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.bridge.rate_share import MINUTE_S, Bucket, RateShares

LIMIT = 100
BUCKET = Bucket(b"k", b"", LIMIT, False)


@given(
    used=st.integers(0, LIMIT),
    gateways=st.integers(1, 5),
    asks=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40), st.floats(0, 3)), max_size=60),
)
def test_all_shares_together_keep_the_limit(
    used: int, gateways: int, asks: list[tuple[int, int, float]]
) -> None:
    shares = [RateShares() for _ in range(gateways)]
    for number, one in enumerate(shares, 1):
        # Each knows only of what was used before it looked; the last one saw it all.
        one.saw(BUCKET, used * number / gateways, 0.0)
        one.begin(0.0)
    now, total = 0.0, float(used)
    for number, cost, pause in asks:
        now += pause
        share = shares[number % gateways]
        if share.level(BUCKET, gateways, now) + cost <= LIMIT / gateways:
            share.add(BUCKET, cost, gateways, now)
            total += cost
        assert total <= LIMIT + now * LIMIT / MINUTE_S + 1e-6


@pytest.mark.parametrize("gateways", [1, 2])
def test_what_was_used_is_told_once_and_what_is_used_meanwhile_too(gateways: int) -> None:
    shares = RateShares()
    shares.saw(BUCKET, 40, 0.0)
    shares.begin(0.0)
    shares.add(BUCKET, 10, gateways, 0.0)
    (news,) = shares.adjustments(gateways, 0.0)
    assert (news.units, news.level_least) == (10, 40)
    shares.told([news], gateways, 0.0)
    assert shares.adjustments(gateways, 0.0) == []
    shares.add(BUCKET, 5, gateways, 0.0)
    (more,) = shares.adjustments(gateways, 0.0)
    assert more.units == pytest.approx(5)


def test_levels_that_redis_may_have_lost_are_told_until_they_have_leaked() -> None:
    shares = RateShares()
    shares.saw(BUCKET, 50, 0.0)
    shares.begin(0.0)
    (news,) = shares.adjustments(1, 15.0)
    assert news.units == 0
    assert news.level_least == pytest.approx(25)
    assert shares.adjustments(1, 30.0) == []
