"""Hashes of blocks in packed bytes, not objects: about 30 bytes each where a dict takes over 100.

`BlockTable` is a linear hash table of byte arrays. It grows by one bucket at a time, so that no
event waits for a table of millions to be copied. Python salts its hashes of bytes in each process,
so that no node can choose blocks that fall into one bucket. Whole hashes are kept: none collide.
"""

from collections.abc import Callable, Collection
from struct import Struct

from inference.contract.blocks import HASH_BYTES

ENTRY = Struct(f"<{HASH_BYTES}sI")
NUMBER = Struct("<I")
WIDTH = ENTRY.size
# Entries of a bucket on average. With more a search takes longer, with fewer the buckets' own
# bytes weigh more.
BUCKET_FILL = 12


class BlockTable:
    """Each hash with a number, 1 to 2**32 - 1; `size` counts them."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.size = 0
        self._buckets = [bytearray()]
        # A bucket's place is the hash's low bits, one bit less where there are not so many buckets.
        self._bits = 1
        self._swept = 0

    def get(self, block: bytes) -> int:
        """The block's number; 0 if it has none."""
        buckets, bits = self._buckets, self._bits
        place = hash(block) & bits
        bucket = buckets[place if place < len(buckets) else place & bits >> 1]
        at = bucket.find(block)
        if at < 0 or (at % WIDTH and (at := _find_whole(bucket, block)) < 0):
            return 0
        number: int = NUMBER.unpack_from(bucket, at + HASH_BYTES)[0]
        return number

    def move(self, blocks: Collection[bytes], step: Callable[[int], int]) -> list[int]:
        """Give each block the number that `step` makes of its own, 0 where it has or gets none.

        Returns the old numbers of those that got another.
        """
        self._reserve(len(blocks))
        buckets, count, bits, low = self._buckets, len(self._buckets), self._bits, self._bits >> 1
        number_at, moved, tails = NUMBER.unpack_from, [], {}
        steps: dict[int, int] = {}
        for block in blocks:
            place = hash(block) & bits
            bucket = buckets[place if place < count else place & low]
            at = bucket.find(block)
            if at > 0 and at % WIDTH:
                at = _find_whole(bucket, block)
            number = number_at(bucket, at + HASH_BYTES)[0] if at >= 0 else 0
            new = steps.get(number)
            if new is None:
                new = steps[number] = step(number)
                tails[new] = NUMBER.pack(new)
            if new == number:
                continue
            moved.append(number)
            if at < 0:
                bucket += block + tails[new]
            elif new:
                bucket[at + HASH_BYTES : at + WIDTH] = tails[new]
            else:
                _remove(bucket, at)
        self.size += moved.count(0) - sum(not steps[number] for number in moved)
        return moved

    def sweep(self, buckets: int, dead: Collection[int]) -> list[int]:
        """Remove entries with a dead number from the next so many buckets; returns the numbers."""
        removed = []
        for _ in range(buckets):
            self._swept = (self._swept + 1) % len(self._buckets)
            bucket = self._buckets[self._swept]
            for at in reversed(range(0, len(bucket), WIDTH)):
                number = NUMBER.unpack_from(bucket, at + HASH_BYTES)[0]
                if number in dead:
                    removed.append(number)
                    _remove(bucket, at)
        self.size -= len(removed)
        return removed

    def _reserve(self, more: int) -> None:
        while self.size + more > BUCKET_FILL * len(self._buckets):
            self._split()

    def _split(self) -> None:
        """One bucket more, with what belongs there."""
        added = len(self._buckets)
        if added > self._bits:
            self._bits = self._bits << 1 | 1
        place, bits = added & self._bits >> 1, self._bits
        stay, go = bytearray(), bytearray()
        if bucket := self._buckets[place]:
            for block, number in ENTRY.iter_unpack(bucket):
                into = go if hash(block) & bits == added else stay
                into += block + NUMBER.pack(number)
        self._buckets[place] = stay
        self._buckets.append(go)


def _remove(bucket: bytearray, at: int) -> None:
    """The last entry takes the place of the one that leaves."""
    bucket[at : at + WIDTH] = bucket[-WIDTH:]
    del bucket[-WIDTH:]


def _find_whole(bucket: bytearray, block: bytes) -> int:
    """Where the entry begins; bytes that cross two entries are none. -1 where there is none."""
    at = bucket.find(block)
    while at > 0 and at % WIDTH:
        at = bucket.find(block, at + 1)
    return at
