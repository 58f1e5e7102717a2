"""The list of live gateways and the division of limits among them, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from fractions import Fraction
from random import Random

import pytest
from django.conf import settings

from controlplane.bridge.fleet import gateways
from controlplane.bridge.fleet.gateways import LEASE_S, GatewayList
from controlplane.bridge.limits.rate_share import NO_SHARE
from controlplane.core.database_roles import conninfo_of
from tests.support.money import rows
from tests.support.servers import Servers
from tests.support.waiting import until

GATEWAYS_MAX = 5
Make = Callable[[str], GatewayList]


@pytest.fixture
async def make(database: str) -> AsyncIterator[Make]:
    made: list[GatewayList] = []

    def make_list(instance: str) -> GatewayList:
        one = GatewayList(
            conninfo_of(settings.DATABASES["gateway"]),
            instance=instance,
            url=f"ws://{instance}/fleet",
            changed=lambda _: None,
        )
        one.start()
        made.append(one)
        return one

    yield make_list
    for one in made:
        await one.close()


def alive(me: str, held: int) -> tuple[int, int]:
    """A heartbeat by hand: how many live, and the share granted."""
    answer = rows("SELECT granted FROM fleet_gateway_alive(%s, '', %s)", me, held)
    return len(answer), answer[0][0]


def age(instance: str) -> None:
    rows("UPDATE gateways SET heartbeat_at = now() - interval '6 s' WHERE instance = %s", instance)


async def test_gateways_find_each_other_and_divide_the_limits(make: Make) -> None:
    first = make("a")
    await until(lambda: first.share.gateways == 1)
    second = make("b")
    await until(lambda: first.share.gateways == second.share.gateways == 2)
    assert [(one.instance, one.url) for one in first.current] == [
        ("a", "ws://a/fleet"), ("b", "ws://b/fleet"),
    ]  # fmt: skip
    assert second.current == first.current
    await second.close()
    await until(lambda: first.share.gateways == 1 and len(first.current) == 1)


async def test_a_gateway_counts_as_alive_until_it_is_known_to_be_gone(make: Make) -> None:
    first = make("a")
    assert first.may_live("b"), "nobody has told yet"
    await until(lambda: bool(first.current))
    assert first.may_live("b"), "it may have begun after the list was asked for"
    second = make("b")
    await until(lambda: len(first.current) == 2)
    assert first.may_live("b")
    await second.close()
    await until(lambda: len(first.current) == 1)
    assert not first.may_live("b"), "it was in a list, and has left"


async def test_a_gateway_that_no_list_has_counts_as_gone_after_a_while(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = make("a")
    await until(lambda: bool(gateway.current))
    assert gateway.may_live("b")
    monkeypatch.setattr(gateways, "UNKNOWN_S", 0.0)
    assert gateway.may_live("b"), "its time has begun"
    assert not gateway.may_live("c")


async def test_a_gateway_at_the_same_address_was_an_earlier_life(make: Make) -> None:
    rows("SELECT fleet_gateway_alive('earlier', 'ws://a/fleet', 0)")
    rows("SELECT fleet_gateway_alive('nowhere', '', 0)")
    gateway = make("a")
    await until(lambda: len(gateway.current) == 3)
    assert not gateway.may_live("earlier")
    assert gateway.may_live("nowhere")


async def test_a_gateway_that_cannot_be_heard_gives_its_share_up_before_others_take_it(
    make: Make, servers: Servers
) -> None:
    gateway = make("a")
    await until(lambda: gateway.share.gateways == 1)
    servers.postgres.kill()
    try:
        await until(lambda: gateway.share == NO_SHARE, LEASE_S + 1)
        assert len(gateway.current) == 1
        assert gateway.may_live("another"), "a list that is out of date tells nothing"
    finally:
        await asyncio.to_thread(servers.postgres.start)
    await until(lambda: gateway.share.gateways == 1)


def test_a_joiner_gets_a_share_only_when_all_others_have_shrunk(database: str) -> None:
    assert alive("a", 0) == (1, 1)
    assert alive("b", 0) == (2, 0)
    assert alive("a", 1) == (2, 2)
    # Whether the answer has reached it is not known before it is heard again.
    assert alive("b", 0) == (2, 0)
    assert alive("a", 2) == (2, 2)
    assert alive("b", 0) == (2, 2)


def test_the_dead_are_removed_and_their_share_is_divided(database: str) -> None:
    alive("a", 0), alive("b", 0), alive("a", 1), alive("a", 2)
    assert alive("b", 0) == (2, 2)
    age("a")
    assert alive("b", 2) == (1, 1)
    # It comes back, and has nothing until the other has shrunk.
    assert alive("a", 0) == (2, 0)


def test_whatever_happens_shares_in_force_are_never_more_than_the_whole(database: str) -> None:
    """Random lives of gateways whose answers get lost now and then."""
    draw, held = Random(7), dict.fromkeys("abcde"[:GATEWAYS_MAX], 0)
    for _ in range(400):
        me = draw.choice(list(held))
        event = draw.random()
        if event < 0.1:
            rows("SELECT fleet_gateway_leave(%s)", me)
            held[me] = 0
        elif event < 0.15:
            age(me)
            held[me] = 0
        else:
            _, granted = alive(me, held[me])
            if event < 0.8:
                held[me] = granted
        assert sum(Fraction(1, n) for n in held.values() if n) <= 1, held
