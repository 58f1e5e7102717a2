"""How fast a node is, learned from its own steps: prompt tokens a second, and seconds per decode.

A node that has not shown it yet is taken to be like its peers.
"""

from dataclasses import dataclass, field

EWMA_WEIGHT = 0.1
PREFILL_TOKENS_PER_S_UNKNOWN = 10_000.0
STEP_S_UNKNOWN = 0.01
# What a node says of itself must not push the fleet's mean beyond what hardware can do.
PREFILL_TOKENS_PER_S_MIN = 1.0
PREFILL_TOKENS_PER_S_MAX = 1e7
STEP_S_MAX = 10.0


@dataclass(slots=True, eq=False, repr=False)
class Ewma:
    """Exponentially weighted mean; `value` is None until the first sample."""

    value: float | None = None

    def add(self, sample: float) -> None:
        if self.value is None:
            self.value = sample
        else:
            self.value += EWMA_WEIGHT * (sample - self.value)


@dataclass(slots=True, eq=False, repr=False)
class Speed:
    """`prefill_tokens_per_s` and `step_s` are learned where `learned_*`, assumed otherwise."""

    prefill_tokens_per_s: float = PREFILL_TOKENS_PER_S_UNKNOWN
    step_s: float = STEP_S_UNKNOWN
    learned_prefill: bool = False
    learned_step: bool = False
    _squares: Ewma = field(default_factory=Ewma)
    _products: Ewma = field(default_factory=Ewma)
    _step_s: Ewma = field(default_factory=Ewma)

    def prefilled(self, tokens: int, seconds: float) -> None:
        """It computed this many prompt tokens in this time, which may also have held decodes.

        The rate is the slope of time over tokens by least squares: full steps weigh most, since
        of a short one most is overhead that a longer prompt does not pay again.
        """
        if tokens <= 0 or seconds <= 0:
            return
        self._squares.add(tokens * tokens)
        self._products.add(tokens * seconds)
        self.learned_prefill = True
        rate = (self._squares.value or 0.0) / (self._products.value or 1.0)
        self.prefill_tokens_per_s = min(
            max(rate, PREFILL_TOKENS_PER_S_MIN), PREFILL_TOKENS_PER_S_MAX
        )

    def stepped(self, seconds: float) -> None:
        """It took this long for a step without prompt tokens."""
        self.learned_step = True
        self._step_s.add(min(seconds, STEP_S_MAX))
        self.step_s = self._step_s.value or self.step_s

    def assume(self, prefill_tokens_per_s: float, step_s: float) -> bool:
        """Take these for what has not been learned; False when that changes nothing."""
        before = self.prefill_tokens_per_s, self.step_s
        if not self.learned_prefill:
            self.prefill_tokens_per_s = prefill_tokens_per_s
        if not self.learned_step:
            self.step_s = step_s
        return before != (self.prefill_tokens_per_s, self.step_s)
