"""Which node has which KV blocks: block hash to a bitmap of nodes, exact by the nodes' own events.

One index per block size. A node's blocks are prefix-closed (a block is findable only with all its
parents), so along a chain the bitmap only shrinks and each change can be galloped to.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import compress
from typing import NamedTuple

from inference.contract.blocks import split_hashes
from inference.contract.frames import KvEvents

# Up to here nodes of a bitmap are found one by one; of more, all places are looked at together.
FEW_NODES = 16
DIGITS_TO_FLAGS = bytes.maketrans(b"01", b"\x00\x01")


class BadEvents(ValueError):
    """Events that a node cannot have; the message names the field."""


class Level(NamedTuple):
    """The nodes (a bitmap) that have at least the first `blocks` blocks of a chain."""

    blocks: int
    nodes: int


class NodeBlocks:
    """What one node has; `seq` is None until a snapshot has come."""

    __slots__ = ("bit", "blocks_max", "hashes", "seq")

    def __init__(self, bit: int, blocks_max: int) -> None:
        self.bit = bit
        self.blocks_max = blocks_max
        self.seq: int | None = None
        self.hashes: set[bytes] = set()


class PrefixIndex:
    def __init__(self) -> None:
        self._bitmaps: dict[bytes, int] = {}
        self._nodes: dict[str, NodeBlocks] = {}
        # By place of the bit; empty where a node has left.
        self._names: list[str] = []
        self._unknown: set[str] = set()

    def __len__(self) -> int:
        return len(self._bitmaps)

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
        self._remove(entry, entry.hashes)
        self._names[entry.bit.bit_length() - 1] = ""
        self._unknown.discard(node)

    def apply(self, node: str, events: KvEvents) -> bool:
        """Follow a node's events; False asks for a snapshot. Raises `BadEvents`.

        Removals come first, so a block that left and came back within one frame is there.
        """
        entry = self._nodes[node]
        stored, removed = _hashes("kv.stored", events.stored), _hashes("kv.removed", events.removed)
        if events.unknown:
            self._remove(entry, entry.hashes)
            entry.seq = None
            self._unknown.add(node)
            return True
        if events.snapshot:
            self._replace(entry, set(stored))
            self._unknown.discard(node)
        elif entry.seq is None or events.seq > entry.seq + 1:
            entry.seq = None
            self._unknown.add(node)
            return False
        elif events.seq <= entry.seq:
            # Made before the snapshot that we already hold.
            return True
        else:
            self._remove(entry, entry.hashes.intersection(removed))
            self._add(entry, set(stored) - entry.hashes)
        entry.seq = events.seq
        return True

    def match(self, chain: Sequence[bytes]) -> list[Level]:
        """How far nodes have this chain: levels of growing depth and shrinking bitmaps."""
        levels: list[Level] = []
        get = self._bitmaps.get
        depth, nodes = 0, get(chain[0], 0) if chain else 0
        while nodes:
            # Invariant: every node of `nodes` has the blocks up to and including `depth`.
            depth = self._last_with(chain, depth, nodes)
            levels.append(Level(depth + 1, nodes))
            depth += 1
            if depth == len(chain):
                break
            nodes &= get(chain[depth], 0)
        return levels

    def cached_blocks(self, chain: Sequence[bytes]) -> dict[str, int]:
        """Leading blocks of the chain by node; nodes without any are left out."""
        return self.by_node(self.match(chain))

    def by_node(self, levels: Sequence[Level]) -> dict[str, int]:
        found: dict[str, int] = {}
        for level, deeper in zip(levels, [*levels[1:], Level(0, 0)], strict=False):
            found.update(dict.fromkeys(self.names(level.nodes & ~deeper.nodes), level.blocks))
        return found

    def names(self, nodes: int) -> Iterable[str]:
        if nodes.bit_count() > FEW_NODES:
            flags = f"{nodes:b}"[::-1].encode().translate(DIGITS_TO_FLAGS)
            return compress(self._names, flags)
        names = []
        while nodes:
            lowest = nodes & -nodes
            names.append(self._names[lowest.bit_length() - 1])
            nodes ^= lowest
        return names

    def _last_with(self, chain: Sequence[bytes], start: int, nodes: int) -> int:
        """Last position from `start` on where all of `nodes` have the block: gallop, then halve."""
        get = self._bitmaps.get
        last, low, stride = len(chain) - 1, start, 1
        while (probe := low + stride) <= last and get(chain[probe], 0) & nodes == nodes:
            low = probe
            stride *= 2
        high = min(low + stride, last + 1)
        while high - low > 1:
            middle = (low + high) // 2
            if get(chain[middle], 0) & nodes == nodes:
                low = middle
            else:
                high = middle
        return low

    def _replace(self, entry: NodeBlocks, hashes: set[bytes]) -> None:
        self._remove(entry, entry.hashes - hashes)
        self._add(entry, hashes - entry.hashes)

    def _add(self, entry: NodeBlocks, hashes: set[bytes]) -> None:
        if len(entry.hashes) + len(hashes) > entry.blocks_max:
            raise BadEvents(f"kv.stored: more blocks than the {entry.blocks_max} of the node")
        bitmaps, bit = self._bitmaps, entry.bit
        for block in hashes:
            bitmaps[block] = bitmaps.get(block, 0) | bit
        entry.hashes |= hashes

    def _remove(self, entry: NodeBlocks, hashes: set[bytes]) -> None:
        bitmaps, bit = self._bitmaps, entry.bit
        for block in hashes:
            left = bitmaps[block] & ~bit
            if left:
                bitmaps[block] = left
            else:
                del bitmaps[block]
        entry.hashes.difference_update(hashes)


def _hashes(field: str, packed: bytes) -> list[bytes]:
    try:
        return split_hashes(packed)
    except ValueError as error:
        raise BadEvents(f"{field}: {error}") from error
