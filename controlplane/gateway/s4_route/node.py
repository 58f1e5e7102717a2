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
    """The best of those of `nodes` that have a credit; one must."""
    roster = memory.roster(nodes)
    overlap = find_overlap(call, sought, fleet, memory, roster=roster)
    began = call.spans.clock()
    now_s = monotonic_s()
    means = memory.means(sought.model)
    if means.is_due(now_s):
        # Those without a credit, too: what is busy counts most when most are.
        every = memory.roster(fleet.candidates(sought.model) or nodes)
        means.observe(every.loads or every.accounts, now_s)
    nodes_now, draw = roster.loads or roster.accounts, random.random()
    choice = choose(nodes_now, overlap.cached, sought.tokens, means, now_s=now_s, draw=draw)
    if overlap.index == "ring" or (sought.key and not overlap.most):
        choice = NodeChoice(_by_ring(sought, fleet, memory, roster), choice.costs)
    link, cached = nodes[choice.place], int(overlap.cached[choice.place])
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
    every = memory.roster(fleet.candidates(sought.model))
    names = every.sorted_names
    if not loads.keys() <= every.by_name.keys():
        names = tuple(sorted(loads.keys() | every.by_name.keys()))
    ring = memory.ring(names)
    return roster.by_name[ring.pick(sought.key or sought.head, loads)]
