"""What routing knows of one node: our own account of it, and what its step frames tell.

Our part is booked at dispatch and released exactly once per job, so it needs no scraped gauge. The
node's part tells how far it is with the prompts, what other gateways have sent it, and its cache.
"""

from __future__ import annotations

from math import inf

from controlplane.gateway.nodes.speed import Speed
from inference.contract.frames import Step

MICROSECONDS_PER_S = 1_000_000
# At full weight running sequences would spread requests until no cache is reused.
ACTIVE_WEIGHT = 0.1


class NoCredit(Exception):
    """The node has as many of our jobs as it offered to take."""


class Told:
    """The node's last load figures, in tokens.

    `own_tokens` are those of our jobs that it has still to prefill, None if it does not count them;
    `caches`: it holds cached blocks that nobody uses, and `oldest_at_s` is when the one that would
    be evicted next was last used.
    """

    __slots__ = (
        "caches", "empty_tokens", "free_tokens", "oldest_at_s", "others_active", "others_tokens",
        "own_tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.own_tokens: int | None = None
        self.others_active = 0
        self.others_tokens = 0
        self.free_tokens = inf
        self.empty_tokens = inf
        self.caches = False
        self.oldest_at_s = 0.0


class Account:
    """Jobs of ours on one node, `active` of them, and what they and others' jobs make of it.

    `queued_tokens` are uncached prompt tokens that wait there to be prefilled, everybody's. Kept
    ready for decisions to add up: `wait_s`, seconds of work that is there; `token_s` for each
    further prompt token; the tokens that fit before the cache must evict (`empty_tokens`) or
    requests must wait (`room_tokens`); and when its oldest cached block was last used.
    `cap` bounds jobs below the node's credits while it has to prove itself.
    """

    __slots__ = (
        "_booked", "_recent", "active", "block_size", "cap", "credits", "empty_tokens", "heard_s",
        "kv_blocks", "oldest_at_s", "queued_tokens", "room_tokens", "speed", "token_s", "told",
        "wait_s",
    )  # fmt: skip

    def __init__(self, credits: int, *, block_size: int = 1, kv_blocks: int = 0) -> None:
        self.credits = credits
        self.cap: int | None = None
        self.block_size = block_size
        self.kv_blocks = kv_blocks
        self.active = 0
        self.speed = Speed()
        self.told = Told()
        self.heard_s = 0.0
        self._booked = 0
        # Booked since the last step frame, and between it and the one before.
        self._recent = (0, 0)
        self.queued_tokens = 0
        self.wait_s = self.token_s = self.oldest_at_s = 0.0
        self.empty_tokens = self.room_tokens = inf
        self.weigh()

    @property
    def credits_left(self) -> int:
        """How many more jobs the node takes from this gateway now."""
        most = self.credits if self.cap is None else min(self.credits, self.cap)
        return most - self.active

    @property
    def others_active(self) -> int:
        """Jobs of other gateways."""
        return self.told.others_active

    def book(self, uncached_tokens: int) -> Booking:
        """Take one credit; raises `NoCredit`."""
        if self.credits_left <= 0:
            raise NoCredit(f"{self.active} of {self.credits} credits are taken")
        newest, newer = self._recent
        self._recent = (newest + uncached_tokens, newer)
        return Booking(self, uncached_tokens)

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
        """Work out anew what a decision adds up."""
        speed, told = self.speed, self.told
        queued = self.queued_tokens = self._queued()
        self.token_s = 1.0 / speed.prefill_tokens_per_s
        sequences = self.active + told.others_active + 1
        self.wait_s = queued * self.token_s + ACTIVE_WEIGHT * sequences * speed.step_s
        # What waits takes its blocks first.
        self.room_tokens = told.free_tokens - queued
        self.empty_tokens = told.empty_tokens - queued
        self.oldest_at_s = told.oldest_at_s

    def _queued(self) -> int:
        """A step frame may have been made before our last jobs arrived, so what was booked within
        the last two frames counts on top of it; our own account is never exceeded.
        """
        told, own = self.told, self._booked
        if told.own_tokens is not None:
            own = min(own, told.own_tokens + sum(self._recent))
        return own + told.others_tokens


class Booking:
    """One job in an `Account`; both steps may be repeated without effect."""

    __slots__ = ("_account", "_queued_tokens", "_released")

    def __init__(self, account: Account, uncached_tokens: int) -> None:
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
        self.prefilled()
        self._account.change(-1, 0)
