"""How many prompt tokens each node has in its prefix cache: by the exact index, while fresh."""

from collections.abc import Collection
from itertools import repeat

import numpy as np

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.index import Level, PrefixIndex
from controlplane.gateway.nodes.measured.loads import Places
from controlplane.gateway.nodes.registry import Fleet
from controlplane.gateway.results import Asked, Prepared
from controlplane.gateway.s4_route.choice.memory import Roster, RoutingMemory
from controlplane.gateway.s4_route.choice.sought import Overlap, Sought, predicted_tokens
from controlplane.kernel.receipt import IndexState
from controlplane.kernel.spans import INDEX

PREFIX = INDEX["s4_route.prefix"]


def sought_of(asked: Asked, prepared: Prepared) -> Sought:
    """What stage 4 looks for."""
    prompt, key = prepared.prompt, asked.ask.cache_key
    return Sought(
        model=prepared.step.model.name,
        rule=asked.plan.label,
        key=f"{asked.key.organization}/{key}".encode() if key else b"",
        tokens=prompt.size,
        chains=prompt.chains,
    )


def find_overlap(
    call: Call, sought: Sought, fleet: Fleet, memory: RoutingMemory, *, roster: Roster
) -> Overlap:
    """Look the prompt up; a node that nothing fresh is known of has what it was just sent."""
    began = call.spans.clock()
    cached, available = _known(sought, fleet, roster)
    stale = guessed = 0
    for place in _unsure(sought, fleet, memory, roster=roster):
        account = roster.accounts[place]
        stale += not account.sent.approximate
        guessed += account.sent.approximate
        cached[place] = max(int(cached[place]), predicted_tokens(sought, account))
    most = max(cached) if isinstance(cached, list) else int(cached.max())
    if guessed:
        available = max(available, most)
    call.spans.add(PREFIX, began)
    state: IndexState = "ring" if stale == len(cached) else "stale" if stale else "exact"
    if guessed and not stale:
        state = "approximate"
    return Overlap(cached=cached, most=most, available=available, index=state)


def _known(sought: Sought, fleet: Fleet, roster: Roster) -> tuple[list[int] | Places, int]:
    """What the indexes say of each node, and the most that any node of the model has."""
    available, most, known = 0, sought.cacheable, dict[str, int]()
    many: Places | None = None
    for size, chain in sought.chains.items():
        if not chain:
            continue
        index = fleet.index(size)
        levels = [Level(min(blocks * size, most), nodes) for blocks, nodes in index.match(chain)]
        if roster.loads is None:
            known.update(index.by_node(levels))
        else:
            depths = index.depths(levels)[roster.places_in(index)]
            many = depths if many is None else many + depths
        available = max(available, _available(sought.model, fleet, index, levels))
    if roster.loads is None:
        return list(map(known.get, roster.names, repeat(0))), available
    return np.zeros(len(roster.names), np.int64) if many is None else many, available


def _unsure(
    sought: Sought, fleet: Fleet, memory: RoutingMemory, *, roster: Roster
) -> Collection[int]:
    """Places of nodes of which nothing fresh is known."""
    found: set[int] = set()
    if silent := memory.means(sought.model).silent:
        found.update([roster.by_account[each] for each in silent if each in roster.by_account])
    for size in sought.chains:
        if doubtful := fleet.index(size).unknown:
            found.update([roster.by_name[each] for each in doubtful if each in roster.by_name])
    return found if found and sought.has_blocks else ()


def _available(model: str, fleet: Fleet, index: PrefixIndex, levels: list[Level]) -> int:
    for level in reversed(levels):
        if any(_serves(fleet, name, model) for name in index.names(level.nodes)):
            return level.blocks
    return 0


def _serves(fleet: Fleet, name: str, model: str) -> bool:
    link = fleet.nodes().get(name)
    return link is not None and any(offer.name == model for offer in link.hello.models)
