"""Blocks that a node will soon have, since it was just sent a prompt of them; for some seconds.

Routing believes the exact index as long as it is fresh: that siblings of a cold prefix follow the
first one's prediction makes them queue on one node. These entries say in the receipt what can be
expected, and stand in for a node whose own events have stopped coming.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

LIFE_S = 8.0
# All chains together; a block is some 60 bytes.
BLOCKS_MAX = 262_144


class _Entry(msgspec.Struct, frozen=True):
    node: str
    chain: Sequence[bytes]
    until_s: float


class Predictions:
    """What was dispatched lately, oldest first; the oldest go when there are too many blocks."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._by_node: dict[str, deque[_Entry]] = {}
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, node: str, chain: Sequence[bytes], now_s: float) -> None:
        """The node has been sent a prompt with this chain of blocks, which must not change."""
        entry = _Entry(node, chain, now_s + LIFE_S)
        self._entries.append(entry)
        self._by_node.setdefault(node, deque()).append(entry)
        self._blocks += len(chain)
        while self._entries[0].until_s <= now_s or self._blocks > BLOCKS_MAX:
            self._forget_oldest()
            if not self._entries:
                return

    def blocks(self, node: str, chain: Sequence[bytes], now_s: float) -> int:
        """Leading blocks of a chain that a node should have by now."""
        entries = self._by_node.get(node, ())
        return max(
            (_shared(each.chain, chain) for each in entries if each.until_s > now_s), default=0
        )

    def _forget_oldest(self) -> None:
        oldest = self._entries.popleft()
        self._blocks -= len(oldest.chain)
        entries = self._by_node[oldest.node]
        entries.popleft()
        if not entries:
            del self._by_node[oldest.node]


def _shared(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Length of the common beginning: equal hashes mean that everything before is equal, too."""
    if not one or not other or one[0] != other[0]:
        return 0
    low, high = 1, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[middle - 1] == other[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
