"""What steps take, measured, and how much of that prompts may have, so that nobody waits for long.

A step takes a time of its own, and for each prompt token one that grows with its place in the
prompt. They differ a hundredfold between machines, so they are fitted to the last steps by least
squares.
"""

from inference.compact.options import CompactOptions

# Without `mixed_ms` a step with prompts may take so many times what one without takes, within
# bounds: small steps cost little where a step costs little, and whoever waits does so for two.
PLAIN_STEPS = 6
MIXED_MS_MIN, MIXED_MS_MAX = 5, 40
# While nobody decodes, and while there is no other prompt, a step may take more than that.
ALONE = 4
# A step may take so many times what one without prompts takes, whatever the bound: where that is
# near the bound, prompts would not get on. What is alone keeps nobody waiting but who comes then.
SLOWED, SLOWED_ALONE = 2, 8
# Share of a new figure in a running mean, and what sums keep when a step is added.
SHARE = 0.1
KEPT = 0.98
# Tokens and their places are told apart where they do not go together any closer than this.
APART = 0.01
US_PER_MS = 1_000


class Pace:
    """Knows nothing before the first steps with prompts: then only the options bound them."""

    def __init__(self, options: CompactOptions) -> None:
        self._mixed_ms = options.mixed_ms
        self._plain_us = 0.0
        # Sums of tokens, of tokens times places and of times, each by each.
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._token_us = self._place_us = 0.0

    def note(self, prompts: list[tuple[int, int]], step_us: int) -> None:
        """A step with so many prompt tokens behind so many others took so long."""
        if not prompts:
            share = SHARE if self._plain_us else 1.0
            self._plain_us += share * (step_us - self._plain_us)
            return
        tokens = sum(count for count, _ in prompts)
        places = sum(count * (start + count / 2) for count, start in prompts)
        took = max(1.0, step_us - self._plain_us)
        new = (tokens**2, tokens * places, places**2, tokens * took, places * took)
        self._sums = tuple(KEPT * old + each for old, each in zip(self._sums, new, strict=True))  # type: ignore[assignment]
        tt, tp, pp, ty, py = self._sums
        self._token_us, self._place_us = ty / tt, 0.0
        if (apart := tt * pp - tp * tp) > APART * tt * pp:
            token_us, place_us = (ty * pp - py * tp) / apart, (py * tt - ty * tp) / apart
            if token_us > 0 and place_us > 0:
                self._token_us, self._place_us = token_us, place_us

    def token_us(self, start: int) -> float:
        """What one more prompt token behind so many others takes; 0 where that is not known."""
        return self._token_us + self._place_us * start

    def room_us(self, *, alone: bool) -> float:
        """Of a step, for prompts; more for one that is alone."""
        times, slowed = (ALONE, SLOWED_ALONE) if alone else (1, SLOWED)
        return max(times * self._mixed_us(), slowed * self._plain_us) - self._plain_us

    def _mixed_us(self) -> float:
        """What a step with several prompts may take."""
        if self._mixed_ms is not None:
            return self._mixed_ms * US_PER_MS
        least_us, most_us = MIXED_MS_MIN * US_PER_MS, MIXED_MS_MAX * US_PER_MS
        return min(max(PLAIN_STEPS * self._plain_us, least_us), most_us)
