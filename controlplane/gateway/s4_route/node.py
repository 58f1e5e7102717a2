"""Which node takes the request: the one of the lowest cost; by the ring where no cache is known.

Where none has anything of the prompt, its client's cache key finds the node on the ring.
"""

import random

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.results import Placement
from controlplane.gateway.s4_route.choice.cost import NodeChoice, choose
from controlplane.gateway.s4_route.choice.memory import Roster, RoutingMemory
from controlplane.gateway.s4_route.choice.receipt import make_receipt
from controlplane.gateway.s4_route.choice.sought import Sought
from controlplane.gateway.s4_route.prefix import find_overlap
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.spans import INDEX

NODE = INDEX["s4_route.node"]


def pick_node(
    call: Call, sought: Sought, fleet: Fleet, memory: RoutingMemory, *, nodes: tuple[NodeLink, ...]
) -> Placement:
    """The best of `nodes`; one must have a credit."""
    roster = memory.roster(nodes)
    overlap = find_overlap(call, sought, fleet, memory, roster=roster)
    began = call.spans.clock()
    now_s = monotonic_s()
    means = memory.means(sought.model)
    if means.is_due(now_s):
        # Those without a credit, too: what is busy counts most when most are.
        means.observe(memory.roster(fleet.candidates(sought.model) or nodes).accounts, now_s)
    choice = choose(
        roster.accounts, overlap.cached, sought.tokens, means, now_s=now_s, draw=random.random()
    )
    if overlap.index == "ring" or (sought.key and not any(overlap.cached)):
        choice = NodeChoice(_by_ring(sought, fleet, memory, roster), choice.costs)
    link, cached = nodes[choice.place], overlap.cached[choice.place]
    receipt = make_receipt(sought, overlap, roster, choice, memory=memory, now_s=now_s)
    if chain := sought.chains[link.hello.block_size]:
        link.account.sent.add(chain, now_s)
    call.spans.add(NODE, began)
    return Placement(link=link, cached_tokens=cached, receipt=receipt)


def _by_ring(sought: Sought, fleet: Fleet, memory: RoutingMemory, roster: Roster) -> int:
    """On the ring stand all nodes of the model, so that few keys move while some are full."""
    loads = {
        name: account.active + account.told.others_active
        for name, account in zip(roster.names, roster.accounts, strict=True)
        if account.credits_left > 0
    }
    names = {link.identity.name for link in fleet.candidates(sought.model)}
    ring = memory.ring(tuple(sorted(names.union(loads))))
    return roster.names.index(ring.pick(sought.key or sought.head, loads))
