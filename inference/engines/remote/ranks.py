"""The prefix caches of one server, each of its data-parallel ranks with an index and a channel.

Gateways are told of all ranks together. A request goes to the rank that has most of its prompt,
unless that is much busier than another; where none has anything, the server chooses.
"""

from collections.abc import Callable, Sequence

from inference.contract.frames import Job, KvEvents
from inference.engines.remote.cache import CacheFollower
from inference.engines.remote.index import BlockIndex, BlockUnion
from inference.engines.remote.kinds import ServerKind

RANK_HEADER = "x-data-parallel-rank"
RANKS_MAX = 64
# What a rank may have of the jobs that were sent for a cache: as many times the idlest's, and more.
BUSY_TIMES, BUSY_MORE = 2, 2


def address_at(addresses: str, rank: int) -> str:
    """Where a rank publishes and replays, as vLLM counts on from the addresses of the first."""
    if not rank:
        return addresses
    found = []
    for address in addresses.split(","):
        head, _, port = address.rpartition(":")
        of_tcp = address.startswith("tcp://")
        found.append(f"{head}:{int(port) + rank}" if of_tcp else f"{address}_dp{rank}")
    return ",".join(found)


class ServerCache:
    """`ranks` caches of `blocks` blocks each; `tell` gets their changes, and all they hold when
    that is known, or no more.
    """

    def __init__(
        self,
        kind: ServerKind,
        addresses: str,
        tell: Callable[[KvEvents], None],
        *,
        block_size: int,
        ranks: int,
    ) -> None:
        self.block_size = block_size
        self._union = BlockUnion()
        self._indexes = [
            BlockIndex(block_size, salted=kind.tells_salts, union=self._union)
            for _ in range(min(ranks, RANKS_MAX))
        ]
        self.followers: Sequence[CacheFollower] = [
            CacheFollower(index, address_at(addresses, rank), tell)
            for rank, index in enumerate(self._indexes)
        ]
        self._busy = [0] * len(self._indexes)

    def send(self, job: Job) -> int | None:
        """The server is sent this prompt; to which rank, None where it may choose."""
        overlaps = [index.overlap(job.hashes) for index in self._indexes]
        for index in self._indexes:
            index.send(job)
        if len(overlaps) == 1 or not max(overlaps):
            return None
        rank = max(range(len(overlaps)), key=lambda each: (overlaps[each], -self._busy[each]))
        if self._busy[rank] > BUSY_TIMES * min(self._busy) + BUSY_MORE:
            return None
        self._busy[rank] += 1
        return rank

    def done(self, job: Job, rank: int | None, uncached: int, *, since_us: int) -> None:
        """A job of `since_us` has ended; it had so many tokens computed."""
        for index in self._indexes:
            index.touch(job.hashes)
        if rank is not None:
            self._busy[rank] -= 1
        elif len(self._indexes) == 1:
            rank = 0
        # The last block may not be full.
        if rank is not None and uncached > 2 * self.block_size:
            self.followers[rank].expect(since_us)

    def snapshot(self) -> KvEvents:
        """All blocks of all ranks."""
        return self._union.snapshot()

    def idle(self, free: int, *, in_use: int, running: int) -> int:
        """How many of the server's `free` blocks are cached."""
        return self._union.idle(free, in_use=in_use, running=running)

    def oldest_s(self) -> float:
        """The age of the block that was used longest ago; 0 without any."""
        return max(index.oldest_s() for index in self._indexes)

    def look(self) -> None:
        """Give up on silent channels, until they speak again."""
        for follower in self.followers:
            follower.look()

    def begin_anew(self) -> None:
        """The server has ended, and its caches with it."""
        for follower in self.followers:
            follower.begin_anew()
