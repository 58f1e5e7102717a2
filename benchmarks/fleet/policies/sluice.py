"""Ours: the code that the gateway itself runs, fed with frames of the shapes that nodes send."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from random import Random

from benchmarks.fleet.cache import KvChange
from benchmarks.fleet.chains import BLOCK_TOKENS, Request
from benchmarks.fleet.fleet import Telling
from benchmarks.fleet.node import Frame, Gpu
from controlplane.gateway.nodes.index import PrefixIndex
from controlplane.gateway.nodes.measured.account import JobBooking, NodeAccount
from controlplane.gateway.nodes.measured.means import FleetMeans
from controlplane.gateway.s4_route.choice.cost import choose
from controlplane.gateway.s4_route.queue.queue import FairQueue
from controlplane.gateway.s4_route.queue.request import NoRoom, QueuedRequest, QueueEntry, QueueLane
from inference.contract.frames import KvEvents, Output, Step, Timing, Usage

LANE = QueueLane("model", "pool", "region")
# Requests wait as long as they have to, or the comparison would be with fewer requests.
PATIENCE_S = 3600.0
# Routing asks only whether a step brought anything.
SOMETHING = [
    Output(
        request=b"",
        choice=0,
        tokens=[],
        usage=Usage(prompt_tokens=0, cached_tokens=0, completion_tokens=0),
        timing=Timing(queue_us=0, prefill_us=0, decode_us=0, held_us=0),
    )
]


class Sluice:
    """One gateway's view of the fleet: accounts, prefix index and means."""

    def __init__(self, gpus: Sequence[Gpu], random: Random, *, gateways: int = 1) -> None:
        self.random = random
        self.index = PrefixIndex()
        self.means = FleetMeans()
        self.accounts = [
            NodeAccount(
                gpu.running_max // gateways, block_size=BLOCK_TOKENS, kv_blocks=gpu.kv_blocks
            )
            for gpu in gpus
        ]
        self._places = {str(number): number for number in range(len(gpus))}
        self._seqs = [0] * len(gpus)
        self._bookings: dict[Request, JobBooking] = {}
        self.queue = FairQueue()
        self._waiting: dict[QueueEntry, Request] = {}
        for name, gpu in zip(self._places, gpus, strict=True):
            self.index.join(name, gpu.kv_blocks)
            self.index.apply(name, KvEvents(seq=0, stored=b"", removed=b"", snapshot=True))

    def pick(self, request: Request, now: float) -> int | None:
        """The cheapest node, or none while none has a credit."""
        if all(account.credits_left <= 0 for account in self.accounts):
            self._wait(request, now)
            return None
        return self._choose(request, now)

    def _wait(self, request: Request, now: float) -> None:
        claim = QueuedRequest(
            tenant=str(request.session),
            work_tokens=request.prompt_tokens + request.output_tokens,
            queue_s=PATIENCE_S,
            deadline_s=PATIENCE_S,
        )
        # The queue has a bound; a request that it refuses is never served, and counted so.
        with contextlib.suppress(NoRoom):
            entered = self.queue.enter(LANE, claim, now)
            self._waiting[entered.ticket] = request

    def _choose(self, request: Request, now: float) -> int:
        cached = self.cached(request)
        self.means.observe(self.accounts, now)
        chosen = choose(
            self.accounts,
            cached,
            request.prompt_tokens,
            self.means,
            now_s=now,
            draw=self.random.random(),
        )
        uncached = request.prompt_tokens - cached[chosen.place]
        self._bookings[request] = self.accounts[chosen.place].book(uncached)
        return chosen.place

    def cached(self, request: Request) -> list[int]:
        """Tokens of this prompt by node, as the index has them."""
        cached = [0] * len(self.accounts)
        for name, blocks in self.index.cached_blocks(request.chain()).items():
            cached[self._places[name]] = request.cached_at(blocks)
        return cached

    def hear(self, telling: Telling, now: float) -> Sequence[tuple[Request, int]]:
        """Take in a step frame, KV events and what came for our requests."""
        frame = telling.frame
        if frame.changes:
            self._seqs[frame.node] += 1
            events = kv_events(frame.changes, self._seqs[frame.node])
            self.index.apply(str(frame.node), events)
        for chunk in frame.chunks:
            if chunk.last and chunk.request in self._bookings:
                self._bookings[chunk.request].prefilled()
        for request in frame.ended:
            if request in self._bookings:
                self._bookings.pop(request).release()
        account = self.accounts[frame.node]
        account.on_step(step(telling), now)
        sent = []
        while account.credits_left > 0 and (ticket := self.queue.next([LANE], now)) is not None:
            request = self._waiting.pop(ticket)
            sent.append((request, self._choose(request, now)))
        return sent


def kv_events(changes: Sequence[KvChange], seq: int) -> KvEvents:
    """Changes of one frame as a node packs them; of a block that came and went the end counts."""
    last: dict[bytes, bool] = {}
    for stored, segment, start, stop in changes:
        last.update(dict.fromkeys(segment.hashes(start, stop), stored))
    return KvEvents(
        seq=seq,
        stored=b"".join([each for each, stored in last.items() if stored]),
        removed=b"".join([each for each, stored in last.items() if not stored]),
    )


def step(telling: Telling) -> Step:
    """A frame in the shape of the wire."""
    frame: Frame = telling.frame
    oldest = frame.oldest_used_at
    return Step(
        outputs=SOMETHING,
        running=frame.running,
        waiting=frame.waiting,
        waiting_tokens=frame.queued_tokens,
        kv_free_blocks=frame.free_blocks,
        kv_cached_blocks=frame.unused_blocks,
        oldest_block_s=0.0 if oldest is None else frame.at - oldest,
        step_us=int(frame.step_s * 1e6),
        preemptions=0,
        prefilled_tokens=sum(chunk.tokens for chunk in frame.chunks),
        others_active=telling.others_active,
        others_queued_tokens=telling.others_queued_tokens,
    )
