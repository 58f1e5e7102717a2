"""How many prompt tokens each node has in its prefix cache, by the exact index."""

from __future__ import annotations

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.registry import Fleet
from controlplane.kernel.spans import INDEX

PREFIX = INDEX["s4_route.prefix"]


def cached_tokens(
    call: Call,
    chains: dict[int, list[bytes]],
    fleet: Fleet,
    *,
    nodes: tuple[NodeLink, ...],
    prompt_tokens: int,
) -> dict[str, int]:
    """Reusable tokens by node name. The last prompt token is always computed, for its logits."""
    began = call.spans.clock()
    found: dict[str, int] = {}
    for size, chain in chains.items():
        for name, blocks in fleet.index(size).cached_blocks(chain).items():
            found[name] = min(blocks * size, prompt_tokens - 1)
    call.spans.add(PREFIX, began)
    return {link.identity.name: found.get(link.identity.name, 0) for link in nodes}
