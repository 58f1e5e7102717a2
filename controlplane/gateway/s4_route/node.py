"""Which node takes the request: the one of the lowest cost; by the ring where no cache is known."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.s4_route.cost import Choice, choose
from controlplane.gateway.s4_route.memory import RoutingMemory
from controlplane.gateway.s4_route.prefix import Sought, cached_tokens, ring_key
from controlplane.gateway.s4_route.receipt import Receipt, make_receipt
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.spans import INDEX

NODE = INDEX["s4_route.node"]


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where the request goes, and why; `cached_tokens` is what the choice believed."""

    link: NodeLink
    cached_tokens: int
    receipt: Receipt

    @property
    def rule(self) -> str:
        """Label of the rule that sent it here."""
        return self.receipt.rule


def pick_node(
    call: Call,
    sought: Sought,
    fleet: Fleet,
    memory: RoutingMemory,
    *,
    nodes: Sequence[NodeLink],
) -> Placement:
    """The best of `nodes`, which all have a credit; there must be one."""
    overlap = cached_tokens(call, sought, fleet, memory, nodes=nodes)
    began = call.spans.clock()
    now_s = monotonic_s()
    means = memory.means(sought.model)
    choice = choose(
        [link.account for link in nodes],
        overlap.cached,
        sought.tokens,
        means,
        now_s=now_s,
        draw=random.random(),
    )
    if overlap.index == "ring":
        choice = Choice(_by_ring(sought, fleet, memory, nodes), choice.costs)
    link = nodes[choice.place]
    size = link.hello.block_size
    placement = Placement(
        link=link,
        cached_tokens=overlap.cached[choice.place],
        receipt=make_receipt(sought, nodes, overlap, choice, means=means, now_s=now_s),
    )
    memory.predictions(size).add(link.identity.name, sought.chains.get(size, ()), now_s)
    call.spans.add(NODE, began)
    return placement


def _by_ring(sought: Sought, fleet: Fleet, memory: RoutingMemory, nodes: Sequence[NodeLink]) -> int:
    """On the ring stand all nodes of the model, so that few keys move while some are full."""
    loads = {
        link.identity.name: link.account.active + link.account.told.others_active for link in nodes
    }
    names = {link.identity.name for link in fleet.candidates(sought.model)}
    ring = memory.ring(tuple(sorted(names.union(loads))))
    return list(loads).index(ring.pick(ring_key(sought), loads))
