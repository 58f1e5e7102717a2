"""The SharedSizes port: size classes of late prompts in Redis, in a table of a fixed size.

One script call per batch, as for limits. Redis away or late: nobody knows more than this gateway.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from controlplane.bridge.limits.redis_link import REPLY, RedisLink, ScriptPlace, bulk, keep_link
from controlplane.gateway.nodes.measured.times import Bound, LearnedBound
from controlplane.kernel.rules import SIZE_CLASSES, SizeClass
from controlplane.kernel.tasks import end

SLOTS = 1 << 17
BATCH_MAX = 256
LOOKS_WAITING_MAX = 1_000
NOTES_WAITING_MAX = 10_000
MS_PER_S = 1_000
SCRIPT = (Path(__file__).parent / "sizes.lua").read_bytes()

Look = tuple[Sequence[bytes], asyncio.Future[list[int] | None]]
_encode = msgspec.msgpack.Encoder().encode


class RedisSizes:
    """One per event loop."""

    def __init__(self, url: str, *, reply: Bound = REPLY) -> None:
        self._place = ScriptPlace(url, SCRIPT, LearnedBound(reply))
        self._link: RedisLink | None = None
        self._busy = False
        self._looks: list[Look] = []
        self._notes: dict[bytes, tuple[int, int]] = {}
        self.link_number = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        link = keep_link(self._place, self._serve, lambda: self._lost([]))
        self._task = asyncio.create_task(link, name="sizes")

    async def close(self) -> None:
        await end(self._task)

    async def look(self, digests: Sequence[bytes]) -> list[SizeClass | None] | None:
        if self._link is None or len(self._looks) >= LOOKS_WAITING_MAX:
            return None
        answer: asyncio.Future[list[int] | None] = asyncio.get_running_loop().create_future()
        self._looks.append((digests, answer))
        self._flush()
        found = await answer
        if found is None:
            return None
        return [SIZE_CLASSES[number - 1] if number else None for number in found]

    def note(self, digest: bytes, served: SizeClass | None, within_s: float) -> bool:
        if self._link is None or len(self._notes) >= NOTES_WAITING_MAX:
            return False
        number = 0 if served is None else SIZE_CLASSES.index(served) + 1
        self._notes[digest] = number, round(within_s * MS_PER_S)
        self._flush()
        return True

    def _flush(self) -> None:
        """Call, unless a call is under way, whose answer brings the next."""
        if self._busy or self._link is None or not (self._looks or self._notes):
            return
        if not self._link.open:
            self._lost([])
            return
        looks, self._looks = self._looks[:BATCH_MAX], self._looks[BATCH_MAX:]
        noted = [(each, self._notes.pop(each)) for each in list(self._notes)[:BATCH_MAX]]
        keys: list[bytes] = []

        def place(digest: bytes) -> int:
            keys.append(bulk(b"sluice:{size}:%d" % (int.from_bytes(digest[:4]) % SLOTS)))
            return len(keys)

        notes = [(place(digest), digest.hex(), *told) for digest, told in noted]
        lookups = [(place(digest), digest.hex()) for digests, _ in looks for digest in digests]
        self._busy = True
        self._link.call(keys, _encode((notes, lookups)), lambda reply: self._heard(looks, reply))

    def _heard(self, looks: list[Look], reply: list[int] | None) -> None:
        self._busy = False
        if reply is None:
            self._lost(looks)
            return
        start = 0
        for digests, answer in looks:
            if not answer.done():
                answer.set_result(reply[start : start + len(digests)])
            start += len(digests)
        self._flush()

    def _lost(self, looks: list[Look]) -> None:
        self._link = None
        self._notes.clear()
        waiting, self._looks = self._looks, []
        for _, answer in (*looks, *waiting):
            if not answer.done():
                answer.set_result(None)

    async def _serve(self, link: RedisLink) -> None:
        self._link = link
        self.link_number += 1
        await link.closed
