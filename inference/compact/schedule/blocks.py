"""The block pool: reference counts, the prefix cache over full blocks, and what changed in it.

A block is in use (referenced), evictable (cached, but without a reference), or free.
This file decides who owns which block; the tensors behind the blocks are elsewhere.
"""

from collections import OrderedDict
from dataclasses import dataclass

from inference.compact.schedule.request import Sequence
from inference.contract.blocks import BlockChanges


@dataclass(slots=True)
class _Cached:
    """What a block is found by; the tokens are compared on every hit."""

    hash: bytes
    tokens: bytes


class OutOfBlocks(Exception):
    """More blocks were asked for than are free or cached: the caller must check first."""


class BlockPool:
    """A fixed number of blocks. Cached blocks are evicted least recently used first, and the
    tail of a chain before its head, since a head without its tail is still of use.
    """

    def __init__(self, blocks: int, block_size: int) -> None:
        self.size = blocks
        self.block_size = block_size
        # Popped from the end, so low numbers are used first and untouched memory stays untouched.
        self._free = list(range(blocks - 1, -1, -1))
        self._ref_counts = [0] * blocks
        self._cached: dict[int, _Cached] = {}
        self._by_hash: dict[bytes, int] = {}
        self._evictable: OrderedDict[int, int] = OrderedDict()
        self.changes = BlockChanges()

    @property
    def available(self) -> int:
        """Blocks that can be allocated now: free ones and cached ones without a user."""
        return len(self._free) + len(self._evictable)

    @property
    def evictable(self) -> int:
        """Cached blocks without a user: allocating more than the free ones evicts them."""
        return len(self._evictable)

    def match(self, sequence: Sequence) -> list[int]:
        """Longest run of cached blocks that begins the sequence, leaving at least one token over.

        At least one token must be computed, since the next one is sampled from its logits; where
        all of them are to be scored, every one.
        """
        found: list[int] = []
        if sequence.request.unscored:
            return found
        for index in range((len(sequence.tokens) - 1) // self.block_size):
            block = self._by_hash.get(sequence.block_hash(index))
            if block is None or self._cached[block].tokens != sequence.block_tokens(index):
                break
            found.append(block)
        return found

    def count_evictable(self, blocks: list[int]) -> int:
        """How many of these would leave `available` when they are shared."""
        return sum(1 for block in blocks if not self._ref_counts[block])

    def share(self, blocks: list[int]) -> None:
        for block in blocks:
            self._ref_counts[block] += 1
            self._evictable.pop(block, None)

    def allocate(self, count: int) -> list[int]:
        """Hand out blocks with one reference each, evicting cached ones where none is free."""
        if count > self.available:
            raise OutOfBlocks(f"{count} blocks wanted, {self.available} available")
        blocks = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for block in blocks:
            self._ref_counts[block] = 1
        return blocks

    def release(self, blocks: list[int], now_us: int) -> None:
        """Drop one reference on each block of a chain, listed from its head."""
        for block in reversed(blocks):
            self._ref_counts[block] -= 1
            if self._ref_counts[block]:
                continue
            if block in self._cached:
                self._evictable[block] = now_us
            else:
                self._free.append(block)

    def cache(self, block: int, block_hash: bytes, tokens: bytes) -> None:
        """Cache a full block, unless another one with the same content already is."""
        if block_hash in self._by_hash:
            return
        self._by_hash[block_hash] = block
        self._cached[block] = _Cached(block_hash, tokens)
        self.changes.note([block_hash], stored=True)

    def oldest_us(self) -> int | None:
        """When the block that eviction would take next was last used; None with none cached."""
        return next(iter(self._evictable.values()), None)

    def _evict(self) -> int:
        block, _ = self._evictable.popitem(last=False)
        block_hash = self._cached.pop(block).hash
        del self._by_hash[block_hash]
        self.changes.note([block_hash], stored=False)
        return block
