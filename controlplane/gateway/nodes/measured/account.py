"""What routing knows of one node: our own account of it, and what its step frames tell.

Our part is booked at dispatch and released exactly once per job, so it needs no scraped gauge. The
node's part tells how far it is with the prompts, what other gateways have sent it, and its cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from controlplane.gateway.nodes.measured.loads import LoadTable
from controlplane.gateway.nodes.measured.sent import SentBlocks
from controlplane.gateway.nodes.measured.speed import Speed
from inference.contract.frames import Step

MICROSECONDS_PER_S = 1_000_000
# At full weight running sequences would spread requests until no cache is reused.
ACTIVE_WEIGHT = 0.1


class NoCredit(Exception):
    """The node has as many of our jobs as it offered to take."""


@dataclass(slots=True, eq=False, repr=False)
class Told:
    """The node's last load figures, in tokens.

    `own_tokens` are those of our jobs that it has still to prefill, None if it does not count them;
    `caches`: it holds cached blocks that nobody uses, and `oldest_at_s` is when the one that would
    be evicted next was last used.
    """

    own_tokens: int | None = None
    others_active: int = 0
    others_tokens: int = 0
    free_tokens: float = inf
    empty_tokens: float = inf
    caches: bool = False
    oldest_at_s: float = 0.0


class Ready(NamedTuple):
    """What a decision adds up, kept ready: at a thousand nodes there is no time to work it out.

    `wait_s` is the work that is there, infinite where no job is taken; `token_s` comes with each
    further prompt token. Beyond `empty_tokens` the cache must evict, beyond `room_tokens` requests
    must wait; `oldest_at_s` is when the oldest cached block was last used.
    """

    wait_s: float
    token_s: float
    empty_tokens: float
    room_tokens: float
    oldest_at_s: float


class NodeAccount:
    """Jobs of ours on one node, `active` of them, and what they and others' jobs make of it.

    `queued_tokens` are uncached prompt tokens that wait there to be prefilled, everybody's.
    `credits_left` is how many more jobs it takes from this gateway now. `heard_s` is when it last
    stepped, `idle_s` when it was last seen without work. All changes are written into the `row` of
    a `table`, if it has one.
    """

    __slots__ = (
        "_booked", "_cap", "_credits", "_recent", "active", "block_size", "credits_left", "heard_s",
        "idle_s", "kv_blocks", "queued_tokens", "ready", "row", "sent", "speed", "table", "told",
    )  # fmt: skip

    def __init__(self, credits: int, *, block_size: int = 1, kv_blocks: int = 0) -> None:
        self.block_size = block_size
        self.kv_blocks = kv_blocks
        self.active = 0
        self.queued_tokens = 0
        self.heard_s = self.idle_s = 0.0
        self.speed = Speed()
        self.sent = SentBlocks()
        self.told = Told()
        self.table: LoadTable | None = None
        self.row: int | None = None
        self._credits = credits
        self._cap: int | None = None
        self._booked = 0
        # Booked since the last step frame, and between it and the one before.
        self._recent = (0, 0)
        self.weigh()

    @property
    def credits(self) -> int:
        """How many jobs the node takes from this gateway at once."""
        return self._credits

    @credits.setter
    def credits(self, number: int) -> None:
        if number != self._credits:
            self._credits = number
            self.weigh()

    @property
    def cap(self) -> int | None:
        """Bounds jobs below the node's credits while it has to prove itself."""
        return self._cap

    @cap.setter
    def cap(self, number: int | None) -> None:
        if number != self._cap:
            self._cap = number
            self.weigh()

    @property
    def others_active(self) -> int:
        return self.told.others_active

    def follow(self, table: LoadTable | None, row: int | None) -> None:
        self.table, self.row = table, row
        self.weigh()

    def book(self, uncached_tokens: int) -> JobBooking:
        """Take one credit; raises `NoCredit`."""
        if self.credits_left <= 0:
            raise NoCredit(f"{self.active} of {self.credits} credits are taken")
        newest, newer = self._recent
        self._recent = (newest + uncached_tokens, newer)
        return JobBooking(self, uncached_tokens)

    def change(self, jobs: int, tokens: int) -> None:
        """Add jobs and waiting tokens of ours; both may be negative."""
        self.active += jobs
        self._booked += tokens
        self.weigh()

    def on_step(self, step: Step, now_s: float) -> None:
        """Learn from a step frame that arrived now."""
        self.heard_s = now_s
        told, seconds = self.told, step.step_us / MICROSECONDS_PER_S
        counts = told.own_tokens is not None or step.prefilled_tokens > 0
        if step.prefilled_tokens:
            self.speed.prefilled(step.prefilled_tokens, seconds)
        elif seconds and (step.running if counts else step.outputs):
            self.speed.stepped(seconds)
        told.others_active = step.others_active
        told.others_tokens = step.others_queued_tokens
        told.own_tokens = None
        if counts:
            told.own_tokens = max(0, step.waiting_tokens - step.others_queued_tokens)
        told.caches = step.kv_cached_blocks > 0
        told.oldest_at_s = now_s - step.oldest_block_s
        if self.kv_blocks:
            told.free_tokens = step.kv_free_blocks * self.block_size
            told.empty_tokens = told.free_tokens - step.kv_cached_blocks * self.block_size
        self._recent = (0, self._recent[0])
        self.weigh()

    def learn_prefill(self, tokens: int, seconds: float) -> None:
        """The same of an engine whose steps do not say what they prefilled: from one prompt."""
        if self.told.own_tokens is None:
            self.speed.prefilled(tokens, seconds)
            self.weigh()

    def assume(self, prefill_tokens_per_s: float, step_s: float) -> None:
        """Take its peers' speed for what it has not shown yet."""
        if self.speed.assume(prefill_tokens_per_s, step_s):
            self.weigh()

    def weigh(self) -> None:
        speed, told = self.speed, self.told
        most = self._credits if self._cap is None else min(self._credits, self._cap)
        self.credits_left = most - self.active
        # A step frame may have been made before our last jobs arrived, so what was booked within
        # the last two frames counts on top of it; our own account is never exceeded.
        own = self._booked
        if told.own_tokens is not None:
            own = min(own, told.own_tokens + sum(self._recent))
        self.queued_tokens = queued = own + told.others_tokens
        token_s = 1.0 / speed.prefill_tokens_per_s
        wait_s = inf
        if self.credits_left > 0:
            sequences = self.active + told.others_active + 1
            wait_s = queued * token_s + ACTIVE_WEIGHT * sequences * speed.step_s
        # What waits takes its blocks first.
        empty_tokens, room_tokens = told.empty_tokens - queued, told.free_tokens - queued
        self.ready = Ready(wait_s, token_s, empty_tokens, room_tokens, told.oldest_at_s)
        if self.table is not None and self.row is not None:
            self.table.write(
                self.row, self.ready,
                self.active, queued, self.heard_s, told.oldest_at_s, told.caches,
                speed.prefill_tokens_per_s, speed.learned_prefill,
                speed.step_s, speed.learned_step,
            )  # fmt: skip


class JobBooking:
    """One job in a `NodeAccount`; both steps may be repeated without effect."""

    __slots__ = ("_account", "_queued_tokens", "_released")

    def __init__(self, account: NodeAccount, uncached_tokens: int) -> None:
        self._account = account
        self._queued_tokens = uncached_tokens
        self._released = False
        account.change(1, uncached_tokens)

    def prefilled(self) -> None:
        """The first output came: the prompt no longer waits."""
        if self._queued_tokens:
            self._account.change(0, -self._queued_tokens)
            self._queued_tokens = 0

    def release(self) -> None:
        """The node has finished with the job, however it ended."""
        if self._released:
            return
        self._released = True
        self._account.change(-1, -self._queued_tokens)
        self._queued_tokens = 0
