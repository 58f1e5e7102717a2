"""The KV cache of one virtual node: least recently used chains lose their tail first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.fleet.chains import Request, Segment


class KvChange(NamedTuple):
    """Blocks `start` up to `stop` of a segment came or went."""

    stored: bool
    segment: Segment
    start: int
    stop: int


class NodeCache:
    """`blocks_max` blocks: cached ones by segment, and those reserved for running requests.

    A segment in use by a running request is pinned and never evicted.
    """

    def __init__(self, blocks_max: int) -> None:
        self.blocks_max = blocks_max
        self.held: dict[Segment, int] = {}
        self.free_blocks = blocks_max
        self.changes: list[KvChange] = []
        self._pins: dict[Segment, int] = {}
        # Unpinned segments in order of last use, and when that was.
        self._unused: dict[Segment, float] = {}
        self.unused_blocks = 0

    def oldest_used_at(self) -> float | None:
        """When the block that would be evicted next was used last."""
        return next(iter(self._unused.values()), None)

    def pin(self, path: Sequence[Segment]) -> None:
        """Keep what a request that starts may use."""
        for segment in path:
            self._pins[segment] = self._pins.get(segment, 0) + 1
            if self._unused.pop(segment, None) is not None:
                self.unused_blocks -= self.held[segment]

    def unpin(self, path: Sequence[Segment], now: float) -> None:
        """A request has ended; later segments go first, so no chain ever loses its middle."""
        for segment in reversed(path):
            self._pins[segment] -= 1
            if self._pins[segment]:
                continue
            del self._pins[segment]
            if segment in self.held:
                self._unused[segment] = now
                self.unused_blocks += self.held[segment]

    def reserve(self, blocks: int) -> bool:
        """Take blocks for a request, evicting if need be; False when too many are in use."""
        if blocks > self.free_blocks + self.unused_blocks:
            return False
        self._evict(blocks - self.free_blocks)
        self.free_blocks -= blocks
        return True

    def release(self, blocks: int) -> None:
        """Give back blocks that were reserved and never stored."""
        self.free_blocks += blocks

    def store(self, request: Request, computed_blocks: int) -> int:
        """Make the first blocks of a request findable; returns how many reserved ones that took.

        Blocks which another request has stored meanwhile stay the private copies of this one.
        """
        stored = 0
        left = computed_blocks
        for segment in request.path:
            here = min(left, segment.blocks)
            held = self.held.get(segment, 0)
            if here > held:
                self.held[segment] = here
                self.changes.append(KvChange(True, segment, held, here))
                stored += here - held
            left -= here
            if not left:
                break
        return stored

    def _evict(self, missing: int) -> None:
        while missing > 0:
            segment = next(iter(self._unused))
            held = self.held[segment]
            gone = min(held, missing)
            self.changes.append(KvChange(False, segment, held - gone, held))
            missing -= gone
            self.free_blocks += gone
            self.unused_blocks -= gone
            if gone == held:
                del self.held[segment], self._unused[segment]
            else:
                self.held[segment] = held - gone
