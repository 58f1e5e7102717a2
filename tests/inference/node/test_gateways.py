"""Which gateways a node dials: its seeds, those that are listed, each process over one link."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from inference.contract.places import GatewayAddress
from inference.engines.echo import EchoEngine, EchoOptions
from inference.node.assets import ModelAssets
from inference.node.gateways import GatewayLinks
from inference.node.link import GatewayLink, LinkHub
from inference.node.options import GATEWAYS_MAX, GONE_S, UNLISTED_S, NodeOptions
from inference.node.service import Node
from tests.support.fleet import CREDENTIAL, NODE, World, fleet_server, make_model
from tests.support.waiting import until

SEED = "ws://seed:8000/fleet"
LISTED = "ws://listed:8000/fleet"
# Long enough for several redials, had there been any.
QUIET_S = 1.5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("node"))


@dataclass
class Rig:
    """Links that nobody runs; whether they are up is said by hand."""

    seeds: tuple[str, ...] = (SEED,)
    dropped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.links = GatewayLinks(self.seeds, pool="chat", dial=self.dial, drop=self.drop)

    def dial(self, url: str) -> GatewayLink:
        return GatewayLink(url, CREDENTIAL, cast(LinkHub, None))

    def drop(self, link: GatewayLink) -> None:
        self.dropped.append(link.url)

    def up(self, url: str, gateway: str) -> GatewayLink:
        link = self.links.by_url[url]
        link.connected, link.gateway = True, gateway
        return link


def address(instance: str, url: str = "") -> GatewayAddress:
    return GatewayAddress(instance=instance, url=url)


async def test_listed_gateways_are_dialled_once_and_dropped_after_a_while() -> None:
    rig = Rig()
    seed = rig.up(SEED, "s")
    for _ in range(2):
        rig.links.listed(seed, [address("s", SEED), address("l", "ws://listed:8000")])
    assert set(rig.links.by_url) == {SEED, LISTED}
    rig.links.look(0.0)
    rig.links.listed(seed, [address("s", SEED)])
    rig.links.look(1.0)
    rig.links.look(UNLISTED_S)
    assert rig.dropped == []
    rig.links.look(1.0 + UNLISTED_S)
    assert rig.dropped == [LISTED]
    assert set(rig.links.by_url) == {SEED}


async def test_a_gateway_back_on_the_list_is_kept() -> None:
    rig = Rig()
    seed = rig.up(SEED, "s")
    both = [address("s", SEED), address("l", LISTED)]
    rig.links.listed(seed, both)
    rig.links.listed(seed, both[:1])
    rig.links.look(0.0)
    rig.links.listed(seed, both)
    rig.links.look(UNLISTED_S - 1)
    rig.links.listed(seed, both[:1])
    rig.links.look(UNLISTED_S)
    rig.links.look(UNLISTED_S + 1)
    assert rig.dropped == []


async def test_seeds_stay_and_without_any_list_all_stay() -> None:
    rig = Rig()
    seed = rig.up(SEED, "s")
    rig.links.listed(seed, [address("l", LISTED)])
    rig.links.look(0.0)
    rig.links.look(10 * UNLISTED_S)
    seed.connected = False
    rig.links.look(20 * UNLISTED_S)
    rig.links.look(40 * UNLISTED_S)
    assert rig.dropped == []


async def test_urls_that_cannot_be_used_are_not_dialled() -> None:
    rig = Rig(seeds=("wss://seed/fleet",))
    seed = rig.up("wss://seed/fleet", "s")
    rig.links.listed(
        seed,
        [
            address("a"),
            address("b", "http://b"),
            address("c", "ws://open"),
            address("d", "wss://d"),
        ],
    )
    # A credential that was meant for TLS does not go out over an open line.
    assert set(rig.links.by_url) == {"wss://seed/fleet", "wss://d/fleet"}
    rig.links.listed(seed, [address(f"g{n}", f"wss://g{n}") for n in range(2 * GATEWAYS_MAX)])
    assert len(rig.links) == GATEWAYS_MAX


async def test_gateways_of_other_pools_are_not_dialled() -> None:
    rig = Rig()
    seed = rig.up(SEED, "s")
    other, own = "ws://other/fleet", "ws://own/fleet"
    rig.links.listed(
        seed,
        [
            GatewayAddress(instance="o", url=other, pools=("code",)),
            GatewayAddress(instance="w", url=own, pools=("code", "chat")),
        ],
    )
    assert set(rig.links.by_url) == {SEED, own} and len(rig.links) == 2
    rig.links.by_url[SEED].elsewhere = True
    assert len(rig.links) == 1, "credits are not kept for a gateway that takes no node of ours"


async def test_a_gateway_is_dead_when_no_list_and_no_link_knows_it_for_a_while() -> None:
    rig = Rig()
    seed = rig.up(SEED, "s")
    rig.links.listed(seed, [address("s", SEED), address("l", LISTED)])
    assert rig.links.gone(["l"], 0.0) == []
    rig.links.listed(seed, [address("s", SEED)])
    assert rig.links.gone(["l"], 1.0) == []
    rig.up(LISTED, "l")
    assert rig.links.gone(["l"], 1.0 + GONE_S) == []
    rig.links.by_url[LISTED].connected = False
    assert rig.links.gone(["l"], 20.0) == []
    assert rig.links.gone(["l"], 20.0 + GONE_S) == ["l"]
    seed.connected = False
    # Nobody is there to say who lives.
    assert rig.links.gone(["l"], 60.0) == []


async def test_a_node_finds_the_other_gateways_from_one(model: Path) -> None:
    one, two = World(), World()
    two.fleet.gateway = "gateway-2"
    async with fleet_server(one) as first, fleet_server(two) as second:
        options = NodeOptions(gateways=(first.url,), name=NODE, credential=CREDENTIAL)
        node = Node(EchoEngine(model, EchoOptions(credits=8)), ModelAssets(model), options)
        await node.start()
        await until(lambda: one.fleet.nodes())
        assert one.fleet.nodes()[NODE].account.credits == 8
        live = (address("gateway-1", first.url), address("gateway-2", second.url))
        one.fleet.tell_gateways(live)
        await until(lambda: two.fleet.nodes())
        links = [world.fleet.nodes()[NODE] for world in (one, two)]
        await until(lambda: [link.account.credits for link in links] == [4, 4])
        await node.close()


async def test_two_addresses_of_one_gateway_end_in_one_link(model: Path) -> None:
    """Each would replace the other for ever."""
    world = World()
    async with fleet_server(world) as server:
        other = server.url.replace("127.0.0.1", "localhost")
        world.fleet.tell_gateways((address("gateway-1", other),))
        options = NodeOptions(gateways=(server.url,), name=NODE, credential=CREDENTIAL)
        node = Node(EchoEngine(model, EchoOptions()), ModelAssets(model), options)
        await node.start()
        await until(lambda: [link.url for link in node.links.connected()] == [other])
        seen = len(world.fleet_port.seen)
        await asyncio.sleep(QUIET_S)
        assert len(world.fleet_port.seen) == seen
        assert [link.url for link in node.links.connected()] == [other]
        assert world.fleet.nodes()[NODE].account.credits == EchoOptions().credits
        await node.close()
