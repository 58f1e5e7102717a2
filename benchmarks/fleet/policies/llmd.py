"""llm-d's precise prefix scheduling: scorers in 0 to 1, weighted and added, highest wins.

Prefix 2, KV use 1, queue 1, as its sample configuration has them. Prefix: matched over all
blocks. KV: what is free of the pool. Queue: 1 for the shortest waiting queue down to 0 for the
longest. Its signals are as fresh as our frames here; in life they are scraped.
"""

from __future__ import annotations

from random import Random

from benchmarks.fleet.chains import Request
from benchmarks.fleet.fleet import Telling
from benchmarks.fleet.policies.ledger import Ledger

PREFIX_WEIGHT = 2.0
KV_WEIGHT = 1.0
QUEUE_WEIGHT = 1.0


class LlmdScorers(Ledger):
    """Knows the exact cache, and queue and KV use as nodes told them last."""

    follows_caches = True

    def __init__(self, nodes: int, random: Random, *, kv_blocks: int) -> None:
        super().__init__(nodes, random)
        self._waiting = [0] * nodes
        self._free_share = [1.0] * nodes
        self._kv_blocks = kv_blocks

    def choose(self, request: Request, now: float) -> int:
        blocks = self.blocks(request)
        longest, shortest = max(self._waiting), min(self._waiting)
        span = longest - shortest
        costs = []
        for node, matched in enumerate(blocks):
            prefix = matched / request.prompt_blocks if request.prompt_blocks else 0.0
            queue = (longest - self._waiting[node]) / span if span else 1.0
            score = PREFIX_WEIGHT * prefix + QUEUE_WEIGHT * queue
            costs.append(-(score + KV_WEIGHT * self._free_share[node]))
        return self.least(costs)

    def hear(self, telling: Telling, now: float) -> tuple[()]:
        """Also notes the queue and the KV use."""
        super().hear(telling, now)
        frame = telling.frame
        self._waiting[frame.node] = frame.waiting
        self._free_share[frame.node] = frame.free_blocks / self._kv_blocks
        return ()
