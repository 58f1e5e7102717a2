"""A fleet of many nodes is weighed all at once, to the last bit as each node by itself."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.gateway.nodes.measured import means as means_module
from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.nodes.measured.loads import MANY_NODES, LoadTable, ManyLoads
from controlplane.gateway.nodes.measured.means import FleetMeans
from controlplane.gateway.nodes.measured.speed import Speed
from controlplane.gateway.s4_route.choice.cost import choose
from controlplane.gateway.s4_route.choice.receipt import CANDIDATES_MAX, _cheapest, _weighed
from tests.support.fleet import make_step

NOW_S = 1000.0
PROMPT = 5000
CREDITS = 8
NODES_MAX = 4 * MANY_NODES


class Crowd:
    """Nodes in random states, `kinds` of them, so that some are equal; with their loads."""

    def __init__(self, seed: int, nodes: int, kinds: int) -> None:
        self.random = Random(seed)
        self.table = LoadTable(nodes)
        seeds = [self.random.random() for _ in range(kinds)]
        self.accounts = [NodeAccount(CREDITS, block_size=16, kv_blocks=1000) for _ in range(nodes)]
        for account in self.accounts:
            self.table.join(account)
        for account in self.accounts:
            self.live(account, Random(self.random.choice(seeds)))
        # One that has room, whatever happened to the others.
        self.accounts[-1].credits = 2 * CREDITS
        self.cached = [self.random.choice([0, 0, 1024, 4096, PROMPT - 1]) for _ in range(nodes)]
        loads = ManyLoads.of(self.accounts)
        assert loads is not None
        self.loads = loads

    def live(self, account: NodeAccount, random: Random) -> None:
        """Whatever may happen to a node; some are full, some have shown nothing of themselves."""
        if random.random() < 0.2:
            account.credits = random.choice([0, CREDITS])
            return
        for _ in range(random.randrange(CREDITS + 1)):
            booking = account.book(random.randrange(2000))
            if random.random() < 0.5:
                booking.prefilled()
        for prefilled in random.choices([0, 0, 300], k=random.randrange(3)):
            free = random.choice([0, 10, 200, 1000])
            step = msgspec.structs.replace(
                make_step(),
                kv_free_blocks=free,
                kv_cached_blocks=random.choice([0, free // 2, free]),
                oldest_block_s=random.uniform(0.0, 90.0),
                prefilled_tokens=prefilled,
                waiting_tokens=random.choice([0, 700]),
                others_active=random.randrange(3),
                step_us=random.randrange(1000, 50_000),
                running=1,
            )
            account.on_step(step, NOW_S - random.uniform(0.0, 3.0))


crowds = st.builds(
    Crowd,
    st.integers(0, 1 << 32),
    nodes=st.integers(MANY_NODES, NODES_MAX),
    kinds=st.integers(1, NODES_MAX),
)


def observed(nodes: list[NodeAccount] | ManyLoads) -> FleetMeans:
    found = FleetMeans()
    for seconds in (0.0, 0.5, 2.0):
        found.observe(nodes, NOW_S + seconds)
    return found


@settings(deadline=None)
@given(crowds, st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_the_choice_and_all_costs_are_those_of_the_plain_loop(
    crowd: Crowd, draw: float, backlog: float
) -> None:
    of = observed(crowd.accounts)
    of.backlog = backlog
    plain, many = (
        choose(nodes, crowd.cached, PROMPT, of, now_s=NOW_S, draw=draw)
        for nodes in (crowd.accounts, crowd.loads)
    )
    assert (many.place, list(many.costs)) == (plain.place, plain.costs)
    assert _weighed(many) == _weighed(plain)
    assert _cheapest(many) == _cheapest(plain)
    assert many.place in _cheapest(many) and len(_cheapest(many)) <= CANDIDATES_MAX


@settings(deadline=None)
@given(st.integers(0, 1 << 32), st.integers(MANY_NODES, NODES_MAX))
def test_the_fleet_looks_the_same_at_once_as_node_by_node(seed: int, nodes: int) -> None:
    plain, crowd = Crowd(seed, nodes, nodes), Crowd(seed, nodes, nodes)
    one, many = observed(plain.accounts), observed(crowd.loads)
    assert many.prefill_tokens_per_s == pytest.approx(one.prefill_tokens_per_s)
    assert (many.oldest_s, many.backlog) == pytest.approx((one.oldest_s, one.backlog))
    places = [
        {place for place, each in enumerate(of.accounts) if each in found.silent}
        for of, found in ((plain, one), (crowd, many))
    ]
    assert places[0] == places[1]
    for each, other in zip(crowd.accounts, plain.accounts, strict=True):
        assert each.ready == pytest.approx(other.ready)


def test_what_is_assumed_of_many_nodes_is_assumed_of_some_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(means_module, "ASSUMED_AT_ONCE", 10)
    crowd = Crowd(0, MANY_NODES, 1)
    for account in crowd.accounts:
        account.speed = Speed()
        account.weigh()
    crowd.accounts[0].speed.prefilled(1000, 0.5)
    crowd.accounts[0].weigh()
    of, known = FleetMeans(), []
    for look in range(5):
        of.observe(crowd.loads, NOW_S + look)
        rates = [each.speed.prefill_tokens_per_s for each in crowd.accounts]
        known.append(sum(rate == pytest.approx(2000.0) for rate in rates))
    assert known[0] == 11 and known[-1] == MANY_NODES


def test_a_crowd_without_a_credit_is_refused() -> None:
    crowd = Crowd(0, MANY_NODES, 1)
    for account in crowd.accounts:
        account.credits = 0
    with pytest.raises(ValueError, match="credit"):
        choose(crowd.loads, crowd.cached, PROMPT, FleetMeans(), now_s=NOW_S, draw=0.0)


def test_few_nodes_and_those_that_are_not_followed_are_looked_at_one_by_one() -> None:
    crowd = Crowd(0, MANY_NODES, 1)
    assert ManyLoads.of(crowd.accounts[1:]) is None
    row = crowd.accounts[0].row
    crowd.table.drop(crowd.accounts[0])
    crowd.table.drop(crowd.accounts[0])
    assert ManyLoads.of(crowd.accounts) is None
    other = NodeAccount(3)
    crowd.table.join(other)
    assert other.row == row
    with pytest.raises(IndexError):
        crowd.table.join(NodeAccount(3))
