"""How many prompt tokens each node has in its prefix cache: by the exact index, while fresh."""

from itertools import repeat

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.index import Level, PrefixIndex
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
    if not sought.has_blocks:
        call.spans.add(PREFIX, began)
        nothing = [0] * len(roster.names)
        return Overlap(cached=nothing, available=0, index="exact")
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
    stale = guessed = 0
    silent = memory.means(sought.model).silent
    if doubtful or silent:
        for place, (name, account) in enumerate(zip(roster.names, roster.accounts, strict=True)):
            if name in doubtful or account in silent:
                stale += not account.sent.approximate
                guessed += account.sent.approximate
                cached[place] = max(cached[place], predicted_tokens(sought, account))
    if guessed:
        available = max(available, *cached)
    call.spans.add(PREFIX, began)
    state: IndexState = "ring" if stale == len(cached) else "stale" if stale else "exact"
    if guessed and not stale:
        state = "approximate"
    return Overlap(cached=cached, available=available, index=state)


def _available(model: str, fleet: Fleet, index: PrefixIndex, levels: list[Level]) -> int:
    for level in reversed(levels):
        if any(_serves(fleet, name, model) for name in index.names(level.nodes)):
            return level.blocks
    return 0


def _serves(fleet: Fleet, name: str, model: str) -> bool:
    link = fleet.nodes().get(name)
    return link is not None and any(offer.name == model for offer in link.hello.models)
