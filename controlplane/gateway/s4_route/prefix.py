"""How many prompt tokens each node has in its prefix cache: by the exact index, while fresh."""

from __future__ import annotations

from itertools import repeat
from typing import Literal

import msgspec

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.index import Level, PrefixIndex
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.s4_route.memory import Roster, RoutingMemory
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.spans import INDEX

PREFIX = INDEX["s4_route.prefix"]
# How much of a prompt siblings must have in common to meet where no index tells.
HEAD_TOKENS = 128
HEAD_BYTES = 512

IndexState = Literal["exact", "stale", "ring"]


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is sought for: a prompt of `tokens`, with its block hashes by block size.

    `text` is the prompt of engines that take only text: they have neither tokens nor an index.
    """

    model: str
    rule: str
    tokens: int
    chains: dict[int, list[bytes]]
    text: bytes = b""

    @property
    def cacheable(self) -> int:
        """All tokens but the last, which is always computed for its logits."""
        return max(0, self.tokens - 1)

    @property
    def head(self) -> bytes:
        """What siblings have in common; empty where nothing can be cached at all."""
        if self.text:
            return self.text[:HEAD_BYTES]
        for size, chain in self.chains.items():
            if chain:
                return chain[min(len(chain), max(1, HEAD_TOKENS // size)) - 1]
        return b""


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Reusable tokens of each node, as the choice believes them.

    `available` is the most that any node of the fleet has, whether it takes jobs now or not.
    """

    cached: list[int]
    available: int
    index: IndexState


def find_overlap(
    call: Call, sought: Sought, fleet: Fleet, memory: RoutingMemory, *, roster: Roster
) -> Overlap:
    """Look the prompt up; a node that nothing fresh is known of has what it was just sent."""
    began = call.spans.clock()
    most = sought.cacheable
    known: dict[str, int] = {}
    doubtful: set[str] = set()
    available = 0
    for size, chain in sought.chains.items():
        index = fleet.index(size)
        levels = [Level(min(blocks * size, most), nodes) for blocks, nodes in index.match(chain)]
        known.update(index.by_node(levels))
        doubtful.update(index.unknown)
        available = max(available, _available(sought.model, fleet, index, levels))
    cached = list(map(known.get, roster.names, repeat(0)))
    stale = 0
    silent = memory.means(sought.model).silent
    if doubtful or silent:
        for place, name in enumerate(roster.names):
            if name in doubtful or roster.accounts[place] in silent:
                stale += 1
                cached[place] = max(cached[place], predicted_tokens(sought, memory, name))
    call.spans.add(PREFIX, began)
    return Overlap(
        cached=cached, available=available, index=_state(sought, stale, len(roster.names))
    )


def predicted_tokens(sought: Sought, memory: RoutingMemory, name: str) -> int:
    """What a node should have soon, since it was sent a prompt with the same beginning."""
    now_s = monotonic_s()
    return max(
        min(memory.predictions(size).blocks(name, chain, now_s) * size, sought.cacheable)
        for size, chain in sought.chains.items()
    )


def _available(model: str, fleet: Fleet, index: PrefixIndex, levels: list[Level]) -> int:
    for level in reversed(levels):
        if any(_serves(fleet, name, model) for name in index.names(level.nodes)):
            return level.blocks
    return 0


def _serves(fleet: Fleet, name: str, model: str) -> bool:
    link = fleet.nodes().get(name)
    return link is not None and any(offer.name == model for offer in link.hello.models)


def _state(sought: Sought, stale: int, nodes: int) -> IndexState:
    if not sought.head:
        return "exact"
    if sought.text or stale == nodes:
        return "ring"
    return "stale" if stale else "exact"
