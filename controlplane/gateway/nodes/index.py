"""Which node has which KV blocks: block hash to a set of nodes, exact by the nodes' own events.

One index per block size. A node's blocks are prefix-closed (a block is findable only with all its
parents), so along a chain the bitmap only shrinks and each change is found by halving.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controlplane.gateway.nodes.packed import BlockTable
from inference.contract.blocks import split_hashes
from inference.contract.frames import KvEvents

# Up to here nodes of a bitmap are found one by one; of more, all places are looked at together.
FEW_NODES = 16
# Buckets that are looked through for blocks of nodes that left, with each change of the index.
SWEPT_AT_ONCE = 8


class BadEvents(ValueError):
    """Events that a node cannot have; the message names the field."""


class Level(NamedTuple):
    """The nodes (a bitmap) that have at least the first `blocks` blocks of a chain."""

    blocks: int
    nodes: int


class NodeBlocks:
    """How many blocks one node has; `seq` is None until a snapshot has come."""

    __slots__ = ("bit", "blocks", "blocks_max", "seq")

    def __init__(self, bit: int, blocks_max: int) -> None:
        self.bit = bit
        self.blocks = 0
        self.blocks_max = blocks_max
        self.seq: int | None = None


class NodeSets:
    """Sets of nodes as bitmaps, each kept once for all blocks that exactly these nodes have.

    A set's number is given again once no block has it; 0 is the set of no node. Where nodes leave,
    sets become empty, too: `dead` are the numbers of those that blocks still have.
    """

    def __init__(self) -> None:
        self.bitmaps = [0]
        self.dead: dict[int, None] = {}
        self._numbers = {0: 0}
        self._uses = [0]
        self._free: list[int] = []

    @property
    def dead_blocks(self) -> int:
        return sum(self._uses[number] for number in self.dead)

    def number(self, bitmap: int) -> int:
        number = self._numbers.get(bitmap)
        if number is None:
            if self._free:
                number = self._free.pop()
                self.bitmaps[number] = bitmap
            else:
                number = len(self.bitmaps)
                self.bitmaps.append(bitmap)
                self._uses.append(0)
            self._numbers[bitmap] = number
        return number

    def use(self, number: int, blocks: int) -> None:
        """So many blocks more, or fewer, have the set; without any it is given up."""
        if not number:
            return
        self._uses[number] += blocks
        if not self._uses[number]:
            if self._numbers.get(self.bitmaps[number]) == number:
                del self._numbers[self.bitmaps[number]]
            self.dead.pop(number, None)
            self.bitmaps[number] = 0
            self._free.append(number)

    def remove(self, bit: int) -> None:
        """Take a node out of all sets; two sets may then be equal."""
        for number, bitmap in enumerate(self.bitmaps):
            if bitmap & bit:
                if self._numbers.get(bitmap) == number:
                    del self._numbers[bitmap]
                self.bitmaps[number] = left = bitmap & ~bit
                if self._numbers.setdefault(left, number) == 0:
                    self.dead[number] = None


class PrefixIndex:
    def __init__(self) -> None:
        self._table = BlockTable()
        self._sets = NodeSets()
        self._nodes: dict[str, NodeBlocks] = {}
        # By place of the bit; empty where a node has left.
        self._names: list[str] = []
        self._unknown: set[str] = set()

    def __len__(self) -> int:
        return self._table.size - self._sets.dead_blocks

    @property
    def unknown(self) -> Collection[str]:
        """Nodes whose snapshot is still to come, or never comes: their caches are not known."""
        return self._unknown

    def join(self, node: str, blocks_max: int) -> None:
        """Start a node empty; a node of the same name is dropped first."""
        self.drop(node)
        if "" not in self._names:
            self._names.append("")
        place = self._names.index("")
        self._names[place] = node
        self._nodes[node] = NodeBlocks(1 << place, blocks_max)
        self._unknown.add(node)

    def drop(self, node: str) -> None:
        entry = self._nodes.pop(node, None)
        if entry is None:
            return
        self._empty(entry)
        self._names[entry.bit.bit_length() - 1] = ""
        self._unknown.discard(node)

    def apply(self, node: str, events: KvEvents) -> bool:
        """Follow a node's events; False asks for a snapshot. Raises `BadEvents`.

        Removals come first, so a block that left and came back within one frame is there.
        """
        entry = self._nodes[node]
        stored, removed = _hashes("kv.stored", events.stored), _hashes("kv.removed", events.removed)
        if events.unknown:
            self._forget(entry)
            return True
        if events.snapshot:
            self._empty(entry)
            self._add(entry, stored)
            self._unknown.discard(node)
        elif entry.seq is None or events.seq > entry.seq + 1:
            entry.seq = None
            self._unknown.add(node)
            return False
        elif events.seq <= entry.seq:
            # Made before the snapshot that we already hold.
            return True
        else:
            self._remove(entry, removed)
            self._add(entry, stored)
        entry.seq = events.seq
        return True

    def match(self, chain: Sequence[bytes]) -> list[Level]:
        """How far nodes have this chain: levels of growing depth and shrinking bitmaps."""
        levels: list[Level] = []
        bitmaps, get, end = self._sets.bitmaps, self._table.get, len(chain)
        nodes = bitmaps[get(chain[0])] if chain else 0
        # What was found at places beyond the level, the nearest last; the chain's end is asked
        # first, since a prompt that was there before has all of it.
        ahead = [(end - 1, bitmaps[get(chain[-1])])] if nodes and end > 1 else []
        low = 0
        while nodes:
            # Invariant: every node of `nodes` has the blocks up to and including `low`.
            while ahead and ahead[-1][1] & nodes == nodes:
                low, _ = ahead.pop()
            high = ahead[-1][0] if ahead else end
            while high - low > 1:
                middle = (low + high) // 2
                found = bitmaps[get(chain[middle])]
                if found & nodes == nodes:
                    low = middle
                else:
                    high = middle
                    ahead.append((middle, found))
            levels.append(Level(high, nodes))
            if high == end:
                break
            nodes &= ahead[-1][1]
        return levels

    def cached_blocks(self, chain: Sequence[bytes]) -> dict[str, int]:
        """Leading blocks of the chain by node; nodes without any are left out."""
        return self.by_node(self.match(chain))

    def by_node(self, levels: Sequence[Level]) -> dict[str, int]:
        found: dict[str, int] = {}
        for level, deeper in zip(levels, [*levels[1:], Level(0, 0)], strict=False):
            found.update(dict.fromkeys(self.names(level.nodes & ~deeper.nodes), level.blocks))
        return found

    def depths(self, levels: Sequence[Level]) -> NDArray[np.int64]:
        """The same by place of the node, with 0 for all others; at -1 is that of no node."""
        found = np.zeros(len(self._names) + 1, np.int64)
        for blocks, nodes in levels:
            if nodes.bit_count() > FEW_NODES:
                flags = _flags(nodes)
                found[: len(flags)][flags] = blocks
                continue
            while nodes:
                lowest = nodes & -nodes
                found[lowest.bit_length() - 1] = blocks
                nodes ^= lowest
        return found

    def place(self, node: str) -> int:
        """Where `depths` has it, as long as it stays; -1 where it is not here."""
        entry = self._nodes.get(node)
        return -1 if entry is None else entry.bit.bit_length() - 1

    def names(self, nodes: int) -> Iterable[str]:
        if nodes.bit_count() > FEW_NODES:
            return compress(self._names, _flags(nodes).tolist())
        names = []
        while nodes:
            lowest = nodes & -nodes
            names.append(self._names[lowest.bit_length() - 1])
            nodes ^= lowest
        return names

    def _empty(self, entry: NodeBlocks) -> None:
        """Its blocks are no longer counted; those that nobody else has are swept by and by."""
        if entry.blocks:
            self._sets.remove(entry.bit)
            entry.blocks = 0
        if not len(self):
            self._table.clear()
            self._sets = NodeSets()

    def _forget(self, entry: NodeBlocks) -> None:
        """Nothing is known of the node until its next snapshot."""
        self._empty(entry)
        entry.seq = None
        self._unknown.add(self._names[entry.bit.bit_length() - 1])

    def _add(self, entry: NodeBlocks, hashes: Collection[bytes]) -> None:
        entry.blocks += self._move(hashes, lambda nodes: nodes | entry.bit)
        if entry.blocks > entry.blocks_max:
            self._forget(entry)
            raise BadEvents(f"kv.stored: more blocks than the {entry.blocks_max} of the node")

    def _remove(self, entry: NodeBlocks, hashes: Collection[bytes]) -> None:
        entry.blocks -= self._move(hashes, lambda nodes: nodes & ~entry.bit)

    def _move(self, hashes: Collection[bytes], change: Callable[[int], int]) -> int:
        """Change the nodes of blocks; returns of how many."""
        sets = self._sets

        def step(number: int) -> int:
            before = sets.bitmaps[number]
            after = change(before)
            # Sets that became equal or empty keep their numbers.
            steps[number] = number if after == before else sets.number(after)
            return steps[number]

        steps: dict[int, int] = {}
        moved = self._table.move(hashes, step)
        for number, blocks in Counter(moved).items():
            sets.use(steps[number], blocks)
            sets.use(number, -blocks)
        if sets.dead:
            for number in self._table.sweep(SWEPT_AT_ONCE, sets.dead):
                sets.use(number, -1)
        return len(moved)


def _flags(nodes: int) -> NDArray[np.bool_]:
    """By place whether a node is in the bitmap, up to its last."""
    packed = np.frombuffer(nodes.to_bytes(-(-nodes.bit_length() // 8), "little"), np.uint8)
    return np.unpackbits(packed, count=nodes.bit_length(), bitorder="little").view(np.bool_)


def _hashes(field: str, packed: bytes) -> list[bytes]:
    try:
        return split_hashes(packed)
    except ValueError as error:
        raise BadEvents(f"{field}: {error}") from error
