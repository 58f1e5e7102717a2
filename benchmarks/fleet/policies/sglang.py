"""SGLang's router, policy `cache_aware`: its own tree of what it sent where, and load guards.

When loads are out of balance the shortest queue wins; else the longest match if it covers enough
of the prompt, else the least loaded. The tree is a guess: it never hears of evictions by nodes,
and is trimmed by age to a size per node.
"""

from __future__ import annotations

from random import Random

from benchmarks.fleet.chains import Request, Segment
from benchmarks.fleet.policies.ledger import Ledger

CACHE_THRESHOLD = 0.3
BALANCE_ABS_THRESHOLD = 64
BALANCE_REL_THRESHOLD = 1.5


class SglangCacheAware(Ledger):
    """Thresholds 0.3, 64 and 1.5; `tree_blocks_max` is set to what a node can hold, its best."""

    def __init__(self, nodes: int, random: Random, *, tree_blocks_max: int) -> None:
        super().__init__(nodes, random)
        self._tree_blocks_max = tree_blocks_max
        self._sizes = [0] * nodes

    def choose(self, request: Request, now: float) -> int:
        node = self._chosen(request)
        self._insert(request, node)
        return node

    def _chosen(self, request: Request) -> int:
        low, high = min(self.active), max(self.active)
        if high - low > BALANCE_ABS_THRESHOLD and high > BALANCE_REL_THRESHOLD * low:
            return self.least(self.active)
        blocks = self.blocks(request)
        best = max(blocks)
        if best > CACHE_THRESHOLD * request.prompt_blocks:
            return self.random.choice([node for node, here in enumerate(blocks) if here == best])
        return self.least(self.active)

    def _insert(self, request: Request, node: int) -> None:
        held = self.cached[node]
        left = request.prompt_blocks
        kept: list[tuple[Segment, int]] = []
        for segment in request.path:
            here = min(left, segment.blocks)
            left -= here
            before = held.pop(segment, 0)
            self._sizes[node] += max(here, before) - before
            kept.append((segment, max(here, before)))
        # Deeper first, so that a chain loses its tail before its head.
        held.update(reversed(kept))
        while self._sizes[node] > self._tree_blocks_max:
            oldest = next(iter(held))
            self._sizes[node] -= held.pop(oldest)
