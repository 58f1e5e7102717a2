"""How long a node may take, learned from how long it took: bounds that follow percentiles.

Three are kept: the wait for a first token and the longest gap between tokens, by model, and the
silence of the whole node while it has work. Each bound has a floor, for a node that was always
quick may pause once, and a cap, which also holds while little is known.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

import msgspec

from controlplane.kernel.histogram import Histogram, merge_all

SAMPLES = 128
KNOWN_MIN = 16
RECENT_MAX = 12
FRESH_FOR = 16
FACTOR = 4.0
PERCENTILE = 0.99
MICROSECONDS_PER_S = 1_000_000
# A first token is never expected sooner, so that two quick nodes are never compared by noise.
FIRST_S_LEAST = 0.05


@dataclass(slots=True, eq=False, repr=False)
class Spread:
    """Durations, of which the last `SAMPLES` to twice as many count."""

    _earlier: Histogram = field(default_factory=Histogram)
    _latest: Histogram = field(default_factory=Histogram)
    _taken: int = 0
    _fresh: bool = False
    _high_s: float | None = None

    def record(self, seconds: float) -> None:
        self._latest.record(round(seconds * MICROSECONDS_PER_S))
        self._taken += 1
        if self._taken % FRESH_FOR == 0:
            self._fresh = False
        if self._taken == SAMPLES:
            self._earlier, self._latest, self._taken = self._latest, Histogram(), 0

    def high_s(self) -> float | None:
        """What nearly all stay within, in seconds; None while too few are known.

        Worked out anew after every `FRESH_FOR` durations.
        """
        if not self._fresh:
            self._fresh = True
            merged = merge_all((self._earlier, self._latest))
            if merged.count >= KNOWN_MIN:
                self._high_s = (merged.percentile(PERCENTILE) or 0.0) / MICROSECONDS_PER_S
        return self._high_s


class Bound(msgspec.Struct, frozen=True):
    """A time limit between a floor and a cap, in seconds."""

    floor_s: float
    cap_s: float

    def of(self, spread: Spread, *, ahead_s: float = 0.0) -> float:
        """The limit now; `ahead_s` is work that has to be done before, at the learned rate."""
        high_s = spread.high_s()
        if high_s is None:
            return self.cap_s
        return min(max(FACTOR * (high_s + ahead_s), self.floor_s), self.cap_s)


class LearnedBound:
    """A limit that follows what was measured; what ran into it counts as that long, or a bound that
    is too short could never grow.
    """

    __slots__ = ("_bound", "_spread")

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._spread = Spread()

    @property
    def seconds(self) -> float:
        return self._bound.of(self._spread)

    def took(self, seconds: float) -> None:
        self._spread.record(seconds)


class FirstToken(msgspec.Struct, frozen=True):
    """One wait for a first token, and the uncached prompt tokens that stood before it."""

    seconds: float
    waiting_tokens: int

    def stretch(self, prefill_tokens_per_s: float) -> float:
        """How many times longer it was than this much work takes at that rate."""
        return self.seconds / (FIRST_S_LEAST + self.waiting_tokens / prefill_tokens_per_s)


class Times(msgspec.Struct, eq=False):
    first: Spread = msgspec.field(default_factory=Spread)
    longest_gap: Spread = msgspec.field(default_factory=Spread)
    recent: deque[FirstToken] = msgspec.field(default_factory=lambda: deque(maxlen=RECENT_MAX))

    def began(self, first: FirstToken) -> None:
        """A job has its first token."""
        self.first.record(first.seconds)
        self.recent.append(first)

    def stretch(self, prefill_tokens_per_s: float) -> float | None:
        """The middle of the recent waits, as `FirstToken.stretch`; None while too few are known."""
        if len(self.recent) < RECENT_MAX:
            return None
        return median(each.stretch(prefill_tokens_per_s) for each in self.recent)
