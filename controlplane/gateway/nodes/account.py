"""Our own account of what one node has from us: credits, queued prefill tokens, active jobs.

It is booked at dispatch and released exactly once per job, so it needs no scraped gauge.
"""

from __future__ import annotations

EWMA_WEIGHT = 0.1


class NoCredit(Exception):
    """The node has as many of our jobs as it offered to take."""


class Ewma:
    """Exponentially weighted mean; `value` is None until the first sample."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float | None = None

    def add(self, sample: float) -> None:
        """Fold one sample in."""
        if self.value is None:
            self.value = sample
        else:
            self.value += EWMA_WEIGHT * (sample - self.value)


class Account:
    """Jobs of ours on one node: `active` of them, with `queued_tokens` not yet prefilled."""

    __slots__ = ("active", "credits", "prefill_tokens_per_s", "queued_tokens", "step_s")

    def __init__(self, credits: int) -> None:
        self.credits = credits
        self.active = 0
        self.queued_tokens = 0
        self.prefill_tokens_per_s = Ewma()
        self.step_s = Ewma()

    @property
    def credits_left(self) -> int:
        """How many more jobs the node takes from this gateway now."""
        return self.credits - self.active

    def book(self, uncached_tokens: int) -> Booking:
        """Take one credit; raises `NoCredit`."""
        if self.active >= self.credits:
            raise NoCredit(f"all {self.credits} credits are taken")
        return Booking(self, uncached_tokens)


class Booking:
    """One job in an `Account`; both steps may be repeated without effect."""

    __slots__ = ("_account", "_queued_tokens", "_released")

    def __init__(self, account: Account, uncached_tokens: int) -> None:
        self._account = account
        self._queued_tokens = uncached_tokens
        self._released = False
        account.active += 1
        account.queued_tokens += uncached_tokens

    def prefilled(self) -> None:
        """The first output came: the prompt no longer waits."""
        self._account.queued_tokens -= self._queued_tokens
        self._queued_tokens = 0

    def release(self) -> None:
        """The node has finished with the job, however it ended."""
        if self._released:
            return
        self._released = True
        self.prefilled()
        self._account.active -= 1
