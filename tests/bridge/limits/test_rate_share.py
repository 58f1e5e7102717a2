"""Shares of a limit while Redis is away: together never over it, and told exactly on return."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.bridge.limits.buckets import MINUTE_S, LimitBucket
from controlplane.bridge.limits.rate_share import Division, RateShares

LIMIT = 100
BUCKET = LimitBucket(b"k", b"", LIMIT)


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
    now, total, division = 0.0, float(used), Division(gateways, -inf)
    for number, cost, pause in asks:
        now += pause
        share = shares[number % gateways]
        if share.level(BUCKET, division, now) + cost <= LIMIT / gateways:
            share.add(BUCKET, cost, division, now)
            total += cost
        assert total <= LIMIT + now * LIMIT / MINUTE_S + 1e-6


@given(
    moves=st.lists(
        st.tuples(st.sampled_from(("ask", "join", "leave")), st.integers(0, 9), st.floats(0, 5)),
        max_size=80,
    )
)
def test_shares_keep_the_limit_while_gateways_join_and_leave(
    moves: list[tuple[str, int, float]],
) -> None:
    """As `fleet_gateway_alive` has it: shares shrink first, and only then somebody else's grows."""
    members, now, total = [RateShares()], 0.0, 0.0
    members[0].saw(BUCKET, 0.0, 0.0)
    members[0].begin(0.0)
    division = Division(1, -inf)
    for move, number, pause in moves:
        now += pause
        if move == "ask":
            share = members[number % len(members)]
            cost = 1 + number * 4
            if share.level(BUCKET, division, now) + cost <= LIMIT / division.gateways:
                share.add(BUCKET, cost, division, now)
                total += cost
        elif move == "join":
            members.append(RateShares())
            members[-1].begin(now)
            division = Division(len(members), now)
        elif len(members) > 1:
            del members[number % len(members)]
            division = Division(len(members), now)
        assert total <= LIMIT + now * LIMIT / MINUTE_S + 1e-6


def test_a_gateway_that_was_not_alone_long_enough_begins_with_nothing_left() -> None:
    seen_before, seen_after, unseen, alone = (RateShares() for _ in range(4))
    seen_before.saw(BUCKET, 10, 90.0)
    seen_after.saw(BUCKET, 10, 100.0)
    for shares in (seen_before, seen_after, unseen, alone):
        shares.begin(100.0)
    since = Division(1, 95.0)
    assert seen_before.level(BUCKET, since, 100.0) == LIMIT
    assert seen_after.level(BUCKET, since, 100.0) == 10
    assert unseen.level(BUCKET, since, 100.0) == LIMIT
    assert alone.level(BUCKET, Division(1, 100.0 - MINUTE_S), 100.0) == 0


def test_what_was_used_before_a_change_of_the_division_is_told_too() -> None:
    shares = RateShares()
    shares.saw(BUCKET, 0, 0.0)
    shares.begin(0.0)
    shares.add(BUCKET, 30, Division(1, -inf), 0.0)
    shares.level(BUCKET, Division(2, 0.0), 0.0)
    (news,) = shares.adjustments(0.0)
    assert news.units == 30
    shares.told([news], 0.0)
    assert shares.adjustments(0.0) == []


@pytest.mark.parametrize("gateways", [1, 2])
def test_what_was_used_is_told_once_and_what_is_used_meanwhile_too(gateways: int) -> None:
    shares, division = RateShares(), Division(gateways, -inf)
    shares.saw(BUCKET, 40, 0.0)
    shares.begin(0.0)
    shares.add(BUCKET, 10, division, 0.0)
    (news,) = shares.adjustments(0.0)
    assert (news.units, news.level_least) == (10, 40)
    shares.told([news], 0.0)
    assert shares.adjustments(0.0) == []
    shares.add(BUCKET, 5, division, 0.0)
    (more,) = shares.adjustments(0.0)
    assert more.units == pytest.approx(5)


def test_levels_that_redis_may_have_lost_are_told_until_they_have_leaked() -> None:
    shares = RateShares()
    shares.saw(BUCKET, 50, 0.0)
    shares.begin(0.0)
    (news,) = shares.adjustments(15.0)
    assert news.units == 0
    assert news.level_least == pytest.approx(25)
    assert shares.adjustments(30.0) == []
