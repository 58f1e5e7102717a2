"""NVIDIA Dynamo's KV router with its defaults: prefill blocks to compute plus blocks to decode.

`cost = (active prompt tokens + uncached tokens) / block size + unique active blocks with this
request`: a block that several running requests share counts once. Prompt tokens count until the
first output. Lowest cost wins; the cached blocks come from the nodes' events.
"""

from __future__ import annotations

from random import Random

from benchmarks.fleet.chains import BLOCK_TOKENS, Request, Segment
from benchmarks.fleet.fleet import Telling
from benchmarks.fleet.policies.ledger import Ledger


class Dynamo(Ledger):
    """Overlap weight 1, temperature 0."""

    follows_caches = True

    def __init__(self, nodes: int, random: Random) -> None:
        super().__init__(nodes, random)
        self._prefilling = [0] * nodes
        self._booked: dict[Request, int] = {}
        self._users: list[dict[Segment, int]] = [{} for _ in range(nodes)]
        self._decode_blocks = [0] * nodes

    def choose(self, request: Request, now: float) -> int:
        cached = [request.cached_at(blocks) for blocks in self.blocks(request)]
        costs = [
            (self._prefilling[node] + request.prompt_tokens - tokens) / BLOCK_TOKENS
            + self._decode_blocks[node]
            + self._new_blocks(request, node)
            for node, tokens in enumerate(cached)
        ]
        node = self.least(costs)
        self._booked[request] = request.prompt_tokens - cached[node]
        self._prefilling[node] += self._booked[request]
        self._decode_blocks[node] += self._new_blocks(request, node)
        users = self._users[node]
        for segment in request.path:
            users[segment] = users.get(segment, 0) + 1
        return node

    def hear(self, telling: Telling, now: float) -> tuple[()]:
        """Also notes whose prompt is done."""
        super().hear(telling, now)
        for chunk in telling.frame.chunks:
            if chunk.last and chunk.request in self._booked:
                self._prefilling[telling.frame.node] -= self._booked.pop(chunk.request)
        return ()

    def ended(self, request: Request, node: int) -> None:
        """Its blocks are no longer active, unless others share them."""
        users = self._users[node]
        for segment in request.path:
            users[segment] -= 1
            if not users[segment]:
                del users[segment]
        self._decode_blocks[node] -= self._new_blocks(request, node)

    def _new_blocks(self, request: Request, node: int) -> int:
        users = self._users[node]
        blocks = request.last_blocks if request.path[-1] not in users else 0
        return blocks + sum(each.blocks for each in request.path[:-1] if each not in users)
