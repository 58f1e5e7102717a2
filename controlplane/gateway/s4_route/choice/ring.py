"""Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016).

For prompts whose caches nobody can tell us of: the same beginning goes to the same node, unless
that has more than its share of the load; then to the next on the ring, which is the same for all
siblings. A node that comes or goes moves only the keys next to its points.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain
from math import ceil

POINTS_PER_NODE = 64
POINTS_PER_DIGEST = 4
# No node has more than this times the mean load: closer to 1 balances, farther keeps siblings.
LOAD_FACTOR = 1.25


class Ring:
    """Points of nodes on a circle of 64-bit numbers."""

    def __init__(self, names: Iterable[str]) -> None:
        points = sorted((position, name) for name in names for position in _points(name))
        self._positions = [position for position, _ in points]
        self._names = [name for _, name in points]

    def pick(self, key: bytes, loads: Mapping[str, int]) -> str:
        """The first node from the key on with room for one more; `loads` are jobs in flight of the
        nodes that may be picked, at least one of them on the ring.
        """
        share = ceil(LOAD_FACTOR * (sum(loads.values()) + 1) / len(loads))
        start = bisect_left(self._positions, _position(key))
        # Every node has been passed once the circle is closed.
        for place in chain(range(start, len(self._names)), range(start)):
            name = self._names[place]
            if name in loads and loads[name] < share:
                return name
        raise ValueError("loads: none of these nodes is on the ring")


def _points(name: str) -> Iterator[int]:
    for number in range(POINTS_PER_NODE // POINTS_PER_DIGEST):
        digest = sha256(f"{name}/{number}".encode()).digest()
        yield from struct.unpack(f">{POINTS_PER_DIGEST}Q", digest)


def _position(key: bytes) -> int:
    position: int = struct.unpack_from(">Q", sha256(key).digest())[0]
    return position
