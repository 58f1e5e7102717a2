"""Blocks that a node has or will soon have, since it was sent prompts of them.

Routing believes the exact index as long as it is fresh: that siblings of a cold prefix follow the
first one's prediction makes them queue on one node. These entries say in the receipt what can be
expected, and stand in for a node whose own events have stopped coming. Of one whose cache nobody
can follow they are all that is known, and kept for longer.
"""

from collections.abc import Sequence
from math import inf

from controlplane.gateway.nodes.measured.gallop import last_true

# An entry is forgotten with its generation, of which there are two: it lives for one at least.
GENERATION_S = 4.0
APPROXIMATE_GENERATION_S = 300.0
# Of one generation; a block is some 100 bytes.
BLOCKS_MAX = 32_768


class SentBlocks:
    """What one node was sent lately. Each generation has all the beginnings of what is in it, so
    that a chain is looked up by halving. `approximate`: its cache cannot be followed.
    """

    __slots__ = ("_fresh", "_old", "_since_s", "approximate")

    def __init__(self) -> None:
        self.approximate = False
        self._fresh: set[bytes] = set()
        self._old: set[bytes] = set()
        self._since_s = -inf

    def __len__(self) -> int:
        return len(self._fresh) + len(self._old)

    def add(self, chain: Sequence[bytes], now_s: float) -> None:
        """The node has been sent a prompt with this chain of blocks."""
        self._age(now_s)
        if chain and chain[-1] in self._fresh:
            return
        known = _leading(self._fresh, chain)
        if len(self._fresh) + len(chain) - known > BLOCKS_MAX:
            self._turn(now_s)
            known = 0
        self._fresh.update(chain[known:BLOCKS_MAX])

    def leading(self, chain: Sequence[bytes], now_s: float) -> int:
        """How many of a chain's first blocks it should have by now."""
        self._age(now_s)
        return max(_leading(part, chain) for part in (self._fresh, self._old))

    def _age(self, now_s: float) -> None:
        life_s = APPROXIMATE_GENERATION_S if self.approximate else GENERATION_S
        age_s = now_s - self._since_s
        if age_s >= 2 * life_s:
            self._fresh = set()
        if age_s >= life_s:
            self._turn(now_s)

    def _turn(self, now_s: float) -> None:
        self._old, self._fresh = self._fresh, set()
        self._since_s = now_s


def _leading(blocks: set[bytes], chain: Sequence[bytes]) -> int:
    """None of a chain's blocks is there without all those before it."""
    return last_true(len(chain), lambda _, high: chain[high - 1] in blocks) if blocks else 0
