"""Base-2 exponential histograms, scale 5: mergeable bit for bit, relative error at most 1.1 %.

Bucket i holds values in (2^((i-1)/32), 2^(i/32)], the boundaries of OpenTelemetry's exponential
histogram at scale 5 and of Prometheus' native schema 5. Percentiles of merged histograms are
exact to the bucket; averages of percentiles are never needed.

What is read from storage stays packed until it is asked for: a page merges thousands of rows and
wants a few percentiles of each step.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil, log2

import numpy as np

BUCKETS_PER_OCTAVE = 32
_HEADER = struct.Struct("<IIQQ")
_BUCKET = struct.Struct("<hI")
_U32_MAX, _U64_MAX = 2**32 - 1, 2**64 - 1
# The same bucket to numpy.
PACKED = np.dtype([("index", "<i2"), ("count", "<u4")])


class Histogram:
    """Counts by bucket, with exact count, sum and maximum.

    Values are integers (microseconds, milli-tokens per second), so that merging in any order gives
    the same bits: a sum of floats would not.
    """

    __slots__ = ("_buckets", "_packed", "maximum", "total", "zeros")

    def __init__(self, buckets: dict[int, int] | None = None) -> None:
        self._buckets = buckets or {}
        # Buckets of stored histograms that are yet to be added.
        self._packed: list[bytes | memoryview] = []
        self.zeros = 0
        self.total = 0
        self.maximum = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.to_bytes() == other.to_bytes()

    @property
    def buckets(self) -> dict[int, int]:
        """Counts by bucket, of values above zero."""
        if self._packed:
            self._unpack()
        return self._buckets

    @property
    def count(self) -> int:
        if self._one_packed:
            return self.zeros + int(np.frombuffer(self._packed[0], PACKED)["count"].sum())
        return self.zeros + sum(self.buckets.values())

    def record(self, value: int) -> None:
        if value <= 0:
            self.zeros += 1
            return
        if value > _U64_MAX:
            value = _U64_MAX
        index = ceil(log2(value) * BUCKETS_PER_OCTAVE)
        self._buckets[index] = self._buckets.get(index, 0) + 1
        self.total += value
        if value > self.maximum:
            self.maximum = value

    def merge(self, other: Histogram) -> None:
        """Add another histogram's counts to this one; order never matters."""
        buckets = self._buckets
        for index, count in other._buckets.items():
            buckets[index] = buckets.get(index, 0) + count
        self._packed += other._packed
        self.zeros += other.zeros
        self.total += other.total
        self.maximum = max(self.maximum, other.maximum)

    def add_bytes(self, data: bytes | memoryview) -> None:
        """Merge what `to_bytes` made; raises ValueError on a length that does not fit."""
        if len(data) < _HEADER.size:
            raise ValueError("histogram: truncated header")
        size, zeros, total, maximum = _HEADER.unpack_from(data)
        if len(data) != _HEADER.size + size * _BUCKET.size:
            raise ValueError("histogram: length does not match its bucket count")
        self.zeros += zeros
        self.total += total
        if maximum > self.maximum:
            self.maximum = maximum
        if size:
            self._packed.append(data[_HEADER.size :])

    def percentile(self, share: float) -> float | None:
        """Value at rank `share` (0..1], nearest rank; None when empty."""
        return self.percentiles((share,))[0]

    def percentiles(self, shares: Sequence[float]) -> list[float | None]:
        """Several at once, which is much cheaper than one by one."""
        if self._one_packed:
            return self._percentiles_packed(shares)
        indexes = sorted(self.buckets)
        # How many values are at most in each bucket, the zero bucket first.
        seen = list(accumulate(map(self.buckets.__getitem__, indexes), initial=self.zeros))
        count = seen[-1]
        if count == 0:
            return [None] * len(shares)
        places = [bisect_left(seen, max(1, ceil(share * count))) for share in shares]
        return [
            min(_middle(indexes[place - 1]), self.maximum) if place else 0.0 for place in places
        ]

    def share_below(self, value: float) -> float | None:
        """Share of the values that are less than this one, to the bucket; None when empty."""
        count = self.count
        if count == 0:
            return None
        if value <= 0:
            return 0.0
        index = ceil(log2(value) * BUCKETS_PER_OCTAVE)
        return (self.zeros + sum(n for at, n in self.buckets.items() if at < index)) / count

    @property
    def _one_packed(self) -> bool:
        """Whether it is just what one row had, whose buckets are in order."""
        return len(self._packed) == 1 and not self._buckets

    def _percentiles_packed(self, shares: Sequence[float]) -> list[float | None]:
        packed = np.frombuffer(self._packed[0], PACKED)
        seen = packed["count"].cumsum(dtype=np.int64) + self.zeros
        ranks = [max(1, ceil(share * int(seen[-1]))) for share in shares]
        indexes = packed["index"][seen.searchsorted(ranks)].tolist()
        return [
            0.0 if rank <= self.zeros else min(_middle(index), self.maximum)
            for rank, index in zip(ranks, indexes, strict=True)
        ]

    def _unpack(self) -> None:
        if self._one_packed:
            self._buckets = dict(_BUCKET.iter_unpack(self._packed.pop()))
            return
        packed = np.frombuffer(b"".join(self._packed), PACKED)
        least = int(packed["index"].min())
        # Sums of doubles are exact up to 2^53, and no count comes near.
        sums = np.bincount(packed["index"].astype(np.int64) - least, weights=packed["count"])
        found = np.flatnonzero(sums)
        counts = sums[found].astype(np.int64).tolist()
        buckets = self._buckets
        for index, count in zip((found + least).tolist(), counts, strict=True):
            buckets[index] = buckets.get(index, 0) + count
        self._packed = []

    def to_bytes(self) -> bytes:
        """Compact form for storage; `from_bytes` restores it exactly, up to what its fields hold:
        a greater count, sum or maximum is stored as the greatest.
        """
        if self._one_packed:
            packed = self._packed[0]
        else:
            buckets = self.buckets
            packed = b"".join(
                [_BUCKET.pack(index, min(buckets[index], _U32_MAX)) for index in sorted(buckets)]
            )
        head = _HEADER.pack(
            len(packed) // _BUCKET.size,
            min(self.zeros, _U32_MAX),
            min(self.total, _U64_MAX),
            min(self.maximum, _U64_MAX),
        )
        return head + packed

    @classmethod
    def of_packed(cls, packed: bytes | memoryview, zeros: int) -> Histogram:
        """Of buckets as they are stored, in their order; sum and maximum are yet to be set."""
        made = cls()
        made.zeros = zeros
        if packed:
            made._packed.append(packed)
        return made

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Histogram:
        """Undo `to_bytes`; raises ValueError on a length that does not fit."""
        made = cls()
        made.add_bytes(data)
        return made


def merge_all(histograms: Iterable[Histogram]) -> Histogram:
    merged = Histogram()
    for histogram in histograms:
        merged.merge(histogram)
    return merged


def _middle(index: int) -> float:
    """Geometric middle of a bucket: at most 1.09 % away from every value in it."""
    return float(2.0 ** ((index - 0.5) / BUCKETS_PER_OCTAVE))
