"""Blocks that a node will soon have, since it was just sent a prompt of them; for some seconds.

Routing believes the exact index as long as it is fresh: that siblings of a cold prefix follow the
first one's prediction makes them queue on one node. These entries say in the receipt what can be
expected, and stand in for a node whose own events have stopped coming.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

import msgspec

LIFE_S = 8.0
HEADS_MAX = 1024
ENTRIES_PER_HEAD_MAX = 64


class _Entry(msgspec.Struct, frozen=True):
    node: str
    chain: Sequence[bytes]
    until_s: float


class Predictions:
    """What was dispatched lately, by the first block of its chain; the oldest go first."""

    def __init__(self) -> None:
        self._heads: OrderedDict[bytes, deque[_Entry]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._heads.values())

    def add(self, node: str, chain: Sequence[bytes], now_s: float) -> None:
        """The node has been sent a prompt with this chain of blocks."""
        if not chain:
            return
        entries = self._heads.get(chain[0])
        if entries is None:
            entries = self._heads[chain[0]] = deque(maxlen=ENTRIES_PER_HEAD_MAX)
        entries.append(_Entry(node, chain, now_s + LIFE_S))
        self._heads.move_to_end(chain[0])
        self._forget(now_s)

    def blocks(self, chain: Sequence[bytes], now_s: float) -> dict[str, int]:
        """Leading blocks of a chain that nodes should have by now; others are left out."""
        found: dict[str, int] = {}
        for entry in self._heads.get(chain[0], ()) if chain else ():
            if entry.until_s > now_s:
                shared = _shared(entry.chain, chain)
                found[entry.node] = max(shared, found.get(entry.node, 0))
        return found

    def drop(self, node: str) -> None:
        """The node has said itself what it has, or is gone."""
        for head, entries in list(self._heads.items()):
            kept = [entry for entry in entries if entry.node != node]
            if not kept:
                del self._heads[head]
            elif len(kept) < len(entries):
                self._heads[head] = deque(kept, maxlen=ENTRIES_PER_HEAD_MAX)

    def _forget(self, now_s: float) -> None:
        """Heads stand in the order of their newest entries, so those that ended come first."""
        while self._heads:
            head, entries = next(iter(self._heads.items()))
            if entries[-1].until_s > now_s and len(self._heads) <= HEADS_MAX:
                return
            del self._heads[head]


def _shared(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """Length of the common beginning: equal hashes mean that everything before is equal, too."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[middle - 1] == other[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
