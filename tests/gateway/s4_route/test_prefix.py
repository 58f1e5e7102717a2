"""What is believed of caches: the exact index, what was just sent to a late node, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import msgspec
import pytest

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.measured import loads
from controlplane.gateway.nodes.measured.loads import MANY_NODES
from controlplane.gateway.nodes.measured.means import SILENT_S
from controlplane.gateway.nodes.measured.sent import SentBlocks
from controlplane.gateway.ports import NodeIdentity
from controlplane.gateway.results import Placement
from controlplane.gateway.s4_route import node as node_module
from controlplane.gateway.s4_route.choice.memory import RoutingMemory
from controlplane.gateway.s4_route.choice.receipt import CANDIDATES_MAX
from controlplane.gateway.s4_route.choice.sought import Sought
from controlplane.gateway.s4_route.node import pick_node
from inference.contract.blocks import chain_hashes
from inference.contract.codec import encode
from inference.contract.frames import KvEvents, ModelOffer
from tests.support.fleet import MODEL, World, make_hello, make_step

SIZE = 16
TOKENS = 20 * SIZE + 5
NAMES = ("ada", "bob", "cyd")
NOW_S = 1e6


def sought(seed: int = 0) -> Sought:
    tokens = [seed] * SIZE + list(range(TOKENS - SIZE))
    chain = chain_hashes(tokens, SIZE, b"salt")
    return Sought(model=MODEL, rule="direct", tokens=TOKENS, chains={SIZE: chain})


class Site:
    """A fleet without sockets whose nodes have room; what it remembers, and one request's call."""

    def __init__(self, *names: str) -> None:
        self.world, self.memory, self.call = World(), RoutingMemory(), Call([])
        for name in names:
            self.add(name)

    def add(self, name: str, **hello: object) -> None:
        identity = self.world.fleet_port.with_orders(NodeIdentity(id=name, name=name, models=None))
        link = self.world.fleet.connect(
            identity, send=lambda data: None, close=lambda code, reason: None
        )
        link.on_bytes(encode(make_hello(node=name, **hello)))

    def tell(self, name: str, chain: list[bytes], *, seq: int = 0, snapshot: bool = True) -> None:
        events = KvEvents(seq=seq, stored=b"".join(chain), removed=b"", snapshot=snapshot)
        self.world.fleet.nodes()[name].on_bytes(encode(events))

    def pick(self, wanted: Sought) -> Placement:
        nodes = tuple(self.world.fleet.nodes().values())
        return pick_node(self.call, wanted, self.world.fleet, self.memory, nodes=nodes)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site(*NAMES)
    for name in NAMES:
        made.tell(name, [])
    yield made
    await made.world.fleet.close()


async def test_the_deepest_prefix_wins_among_idle_nodes(site: Site) -> None:
    wanted = sought()
    site.tell("bob", wanted.chains[SIZE][:15])
    site.tell("cyd", wanted.chains[SIZE][:3])
    placed = site.pick(wanted)
    receipt = placed.receipt
    assert (placed.link.identity.name, placed.cached_tokens) == ("bob", 15 * SIZE)
    assert (receipt.index, receipt.available_tokens) == ("exact", 15 * SIZE)
    assert receipt.why.startswith("bob had 240 of 325 prompt tokens cached and the lowest")
    cached = {each.node: each.cached_tokens for each in receipt.candidates}
    assert cached == {"ada": 0, "bob": 240, "cyd": 48}


async def test_the_last_token_is_never_cached(site: Site) -> None:
    wanted = msgspec.structs.replace(sought(), tokens=20 * SIZE)
    site.tell("ada", wanted.chains[SIZE])
    assert site.pick(wanted).cached_tokens == 20 * SIZE - 1


async def test_a_full_node_is_passed_and_said_to_have_more(site: Site) -> None:
    wanted = sought()
    site.tell("bob", wanted.chains[SIZE])
    nodes = site.world.fleet.nodes()
    nodes["bob"].account.credits = 0
    placed = site.pick(wanted)
    assert placed.link.identity.name != "bob"
    assert (placed.cached_tokens, placed.receipt.available_tokens) == (0, 20 * SIZE)
    assert "bob" not in {each.node for each in placed.receipt.candidates}


async def test_what_was_sent_there_is_expected_and_not_believed(site: Site) -> None:
    first = site.pick(sought())
    assert first.receipt.predicted_cached_tokens == 0
    nodes = (first.link,)
    again = pick_node(site.call, sought(), site.world.fleet, site.memory, nodes=nodes)
    assert again.receipt.predicted_cached_tokens == 20 * SIZE
    assert (again.cached_tokens, again.receipt.index) == (0, "exact")


async def test_after_a_gap_a_node_has_what_it_was_sent(site: Site) -> None:
    home = site.pick(sought()).link.identity.name
    site.tell(home, [], seq=7, snapshot=False)
    assert set(site.world.fleet.index(SIZE).unknown) == {home}
    placed = site.pick(sought())
    assert (placed.link.identity.name, placed.cached_tokens) == (home, 20 * SIZE)
    assert placed.receipt.index == "stale"
    assert "late" in placed.receipt.why
    site.tell(home, [], seq=8)
    assert site.pick(sought()).receipt.index == "exact"


async def test_a_node_that_works_in_silence_is_late(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1000.0]
    for module in ("s4_route.node", "s4_route.choice.sought"):
        clock = f"controlplane.gateway.{module}.monotonic_s"
        monkeypatch.setattr(clock, lambda: now_s[0])
    site.pick(sought())
    account = site.world.fleet.nodes()["ada"].account
    account.book(10)
    now_s[0] += SILENT_S + 0.1
    site.pick(sought())
    assert site.memory.means(MODEL).silent == {account}
    assert site.pick(sought()).receipt.index == "stale"
    account.on_step(make_step(), now_s[0])
    now_s[0] += 0.5
    site.pick(sought())
    assert site.pick(sought()).receipt.index == "exact"


async def test_a_key_is_a_place_until_a_node_has_the_prompt(site: Site) -> None:
    homes: dict[bytes, set[str]] = {}
    for seed in range(8):
        for number in range(20):
            key = b"org/%d" % number
            wanted = msgspec.structs.replace(sought(100 * number + seed), key=key)
            homes.setdefault(key, set()).add(site.pick(wanted).link.identity.name)
    assert all(len(nodes) == 1 for nodes in homes.values())
    assert set.union(*homes.values()) == set(NAMES)
    wanted = msgspec.structs.replace(sought(), key=b"org/0")
    other = min(set(NAMES) - homes[b"org/0"])
    site.tell(other, wanted.chains[SIZE])
    placed = site.pick(wanted)
    assert (placed.link.identity.name, placed.cached_tokens) == (other, 20 * SIZE)


async def test_a_node_that_nobody_can_follow_has_what_it_was_sent() -> None:
    site = Site(*NAMES)
    for node in site.world.fleet.nodes().values():
        node.on_bytes(encode(KvEvents(seq=0, stored=b"", removed=b"", snapshot=True, unknown=True)))
    first = site.pick(sought())
    assert (first.cached_tokens, first.receipt.index) == (0, "approximate")
    again = site.pick(sought())
    home = again.link.identity.name
    assert (home, again.cached_tokens) == (first.link.identity.name, 20 * SIZE)
    assert again.receipt.available_tokens == again.receipt.predicted_cached_tokens == 20 * SIZE
    assert "cannot be followed" in again.receipt.why
    # Of one that can be, after all, its own word counts.
    site.tell(home, [])
    assert site.pick(sought()).link.identity.name in NAMES
    assert not site.world.fleet.nodes()[home].account.sent.approximate
    await site.world.fleet.close()


async def test_a_prompt_below_a_block_needs_no_ring() -> None:
    site = Site(*NAMES)
    short = msgspec.structs.replace(sought(), tokens=5, chains={SIZE: []})
    assert site.pick(short).receipt.index == "exact"
    await site.world.fleet.close()


async def test_a_receipt_is_short_in_a_large_fleet() -> None:
    names = [f"node-{number}" for number in range(40)]
    site = Site(*names)
    for name in names:
        site.tell(name, [])
    receipt = site.pick(sought()).receipt
    assert len(receipt.candidates) == CANDIDATES_MAX
    assert receipt.node in {each.node for each in receipt.candidates}
    costs = [each.cost_ms or 0.0 for each in receipt.candidates]
    assert costs == sorted(costs)
    await site.world.fleet.close()


async def test_full_nodes_count_in_the_means_of_the_fleet() -> None:
    text_only = ModelOffer(name=MODEL, digest="", context_window=4096, vocab_size=0)
    site = Site()
    for name in NAMES:
        site.add(name, models=[text_only], credits=1)
    ada, bob, cyd = site.world.fleet.candidates(MODEL)
    for full in (ada, bob):
        full.account.book(5_000)
    pick_node(site.call, sought(), site.world.fleet, site.memory, nodes=(cyd,))
    assert site.memory.means(MODEL).backlog == pytest.approx(2 / 3)
    await site.world.fleet.close()


@pytest.mark.parametrize("seed", range(12))
async def test_many_nodes_are_told_the_same_as_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node, cached tokens and receipt: caches of all kinds, full nodes, late ones, a cache key."""
    random = Random(seed)
    site, wanted = Site(), sought()
    names = [f"node-{number}" for number in range(MANY_NODES + random.randrange(20))]
    for name in names:
        site.add(name, credits=random.randrange(4))
        late = seed % 3 == 1 and random.random() < 0.1
        if not late:
            depth = random.choice([0, 0, 3, 9, 20]) if seed % 4 else 0
            site.tell(name, wanted.chains[SIZE][:depth])
    wanted = msgspec.structs.replace(wanted, key=b"key" if seed % 4 < 2 else b"")
    monkeypatch.setattr(node_module, "monotonic_s", lambda: NOW_S)
    monkeypatch.setattr("random.random", lambda: seed / 12)
    many = site.pick(wanted)
    monkeypatch.setattr(loads, "MANY_NODES", len(names) + 1)
    site.memory, many.link.account.sent = RoutingMemory(), SentBlocks()
    one_by_one = site.pick(wanted)
    assert many.receipt == one_by_one.receipt
    assert (many.link, many.cached_tokens) == (one_by_one.link, one_by_one.cached_tokens)
    await site.world.fleet.close()
