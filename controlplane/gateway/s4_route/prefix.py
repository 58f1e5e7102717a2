"""How many prompt tokens each node has in its prefix cache: by the exact index, while fresh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.s4_route.memory import RoutingMemory
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.spans import INDEX

PREFIX = INDEX["s4_route.prefix"]
# A node's events come with its steps, so one that works without stepping has told nothing new.
STALE_S = 1.0
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


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Reusable tokens, one figure per node.

    `cached` is what the choice believes, `expected` has also what was dispatched moments ago.
    `available` is the most that any node of the fleet has, whether it takes jobs now or not.
    """

    cached: list[int]
    expected: list[int]
    available: int
    index: IndexState


def cached_tokens(
    call: Call,
    sought: Sought,
    fleet: Fleet,
    memory: RoutingMemory,
    *,
    nodes: Sequence[NodeLink],
) -> Overlap:
    """The last prompt token is always computed, for its logits, so it counts as cached nowhere."""
    began = call.spans.clock()
    now_s = monotonic_s()
    known: dict[str, int] = {}
    guessed: dict[str, int] = {}
    unknown: set[str] = set()
    available = 0
    for size, chain in sought.chains.items():
        index = fleet.index(size)
        levels = index.match(chain)
        known.update((name, blocks * size) for name, blocks in index.by_node(levels).items())
        for name, blocks in memory.predictions(size).blocks(chain, now_s).items():
            guessed[name] = blocks * size
        unknown.update(index.unknown)
        for level in reversed(levels):
            if any(_serves(fleet, name, sought.model) for name in index.names(level.nodes)):
                available = max(available, level.blocks * size)
                break
    names = [link.identity.name for link in nodes]
    stale = unknown.union(_silent(nodes, now_s)).intersection(names)
    most = max(0, sought.tokens - 1)
    expected = [min(max(known.get(name, 0), guessed.get(name, 0)), most) for name in names]
    if stale:
        cached = [
            expected[place] if name in stale else min(known.get(name, 0), most)
            for place, name in enumerate(names)
        ]
    else:
        cached = [min(known.get(name, 0), most) for name in names]
    call.spans.add(PREFIX, began)
    return Overlap(
        cached=cached,
        expected=expected,
        available=min(available, most),
        index=_state(sought, len(stale), len(nodes)),
    )


def ring_key(sought: Sought) -> bytes:
    """What siblings have in common; empty where nothing can be cached at all."""
    if sought.text:
        return sought.text[:HEAD_BYTES]
    for size, chain in sought.chains.items():
        if chain:
            return chain[min(len(chain), max(1, HEAD_TOKENS // size)) - 1]
    return b""


def _state(sought: Sought, stale: int, nodes: int) -> IndexState:
    if not ring_key(sought):
        return "exact"
    if sought.text or stale == nodes:
        return "ring"
    return "stale" if stale else "exact"


def _serves(fleet: Fleet, name: str, model: str) -> bool:
    link = fleet.nodes().get(name)
    return link is not None and any(offer.name == model for offer in link.hello.models)


def _silent(nodes: Sequence[NodeLink], now_s: float) -> list[str]:
    """Nodes that have had work for a while, and have said nothing."""
    return [
        link.identity.name
        for link in nodes
        if link.account.active
        and now_s - link.account.heard_s > STALE_S
        and now_s - link.jobs.busy_since_s > STALE_S
    ]
