"""Blocks that a node will soon have, since it was just sent a prompt of them; for some seconds.

Routing believes the exact index as long as it is fresh: that siblings of a cold prefix follow the
first one's prediction makes them queue on one node. These entries say in the receipt what can be
expected, and stand in for a node whose own events have stopped coming.
"""

from collections.abc import Sequence
from math import inf

from controlplane.kernel.gallop import last_true

# A prediction is forgotten with its generation, of which there are two: it lives for one at least.
GENERATION_S = 4.0
LIFE_S_MAX = 2 * GENERATION_S
# Of one generation, all nodes together; a block is some 60 bytes.
BLOCKS_MAX = 131_072

Blocks = dict[str, set[bytes]]


class Predictions:
    """What was dispatched lately, as sets of blocks by node. Each set has all the beginnings of
    what is in it, so that a chain is looked up by halving.
    """

    def __init__(self) -> None:
        self._fresh: Blocks = {}
        self._old: Blocks = {}
        self._count = 0
        self._since_s = -inf

    def __len__(self) -> int:
        return sum(len(blocks) for part in (self._fresh, self._old) for blocks in part.values())

    def add(self, node: str, chain: Sequence[bytes], now_s: float) -> None:
        """The node has been sent a prompt with this chain of blocks."""
        if not chain:
            return
        self._age(now_s)
        if self._count + len(chain) > BLOCKS_MAX:
            self._turn(now_s)
        blocks = self._fresh.setdefault(node, set())
        before = len(blocks)
        blocks.update(chain[:BLOCKS_MAX])
        self._count += len(blocks) - before

    def blocks(self, node: str, chain: Sequence[bytes], now_s: float) -> int:
        """Leading blocks of a chain that a node should have by now."""
        self._age(now_s)
        return max(_leading(part.get(node), chain) for part in (self._fresh, self._old))

    def _age(self, now_s: float) -> None:
        age_s = now_s - self._since_s
        if age_s >= LIFE_S_MAX:
            self._fresh = {}
        if age_s >= GENERATION_S:
            self._turn(now_s)

    def _turn(self, now_s: float) -> None:
        self._old, self._fresh = self._fresh, {}
        self._count = 0
        self._since_s = now_s


def _leading(blocks: set[bytes] | None, chain: Sequence[bytes]) -> int:
    """How many of the chain's first blocks are there: none is without all those before it."""
    if not blocks:
        return 0
    return last_true(len(chain), lambda _, high: chain[high - 1] in blocks)
