"""What steps take, measured, and how much of that prompts may have, so that nobody waits for long.

A step takes a time of its own, more of it for each token that it decodes, and for each prompt token
one that grows with its place in the prompt. They differ a hundredfold between machines, so they are
fitted to the last steps by least squares.
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
# What sums keep when a step is added.
KEPT = 0.98
# Two costs are told apart where what they are counted by does not go together any closer than this.
APART = 0.01
US_PER_MS = 1_000


class _Costs:
    """The costs of two things that are counted in each step, by the times that steps took."""

    def __init__(self) -> None:
        # Sums of the first count, of the second and of times, each by each.
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self.first_us = self.second_us = 0.0

    def note(self, first: float, second: float, took_us: float) -> None:
        """A step with so many of both took so long."""
        new = (first**2, first * second, second**2, first * took_us, second * took_us)
        self._sums = tuple(KEPT * old + each for old, each in zip(self._sums, new, strict=True))  # type: ignore[assignment]
        ff, fs, ss, ft, st = self._sums
        self.first_us, self.second_us = ft / ff, 0.0
        if (apart := ff * ss - fs * fs) > APART * ff * ss:
            first_us, second_us = (ft * ss - st * fs) / apart, (st * ff - ft * fs) / apart
            if first_us > 0 and second_us > 0:
                self.first_us, self.second_us = first_us, second_us


class Pace:
    """Knows nothing before the first steps with prompts: then only the options bound them."""

    def __init__(self, options: CompactOptions) -> None:
        self._mixed_ms = options.mixed_ms
        # Of a step and each token that it decodes; of a prompt token and each place before it.
        self._decodes, self._prompts = _Costs(), _Costs()

    def note(self, decoded: int, prompts: list[tuple[int, int]], step_us: int) -> None:
        """A step that decoded so many tokens, with so many of prompts, each behind so many others,
        took so long.
        """
        if not prompts:
            self._decodes.note(1, decoded, step_us)
            return
        tokens = sum(count for count, _ in prompts)
        places = sum(count * (start + count / 2) for count, start in prompts)
        self._prompts.note(tokens, places, max(1.0, step_us - self._plain_us(decoded)))

    def token_us(self, start: int) -> float:
        """What one more prompt token behind so many others takes; 0 where that is not known."""
        return self._prompts.first_us + self._prompts.second_us * start

    def room_us(self, decoded: int, *, alone: bool) -> float:
        """Of a step that decodes so many tokens, for prompts; more for one that is alone."""
        plain_us = self._plain_us(decoded)
        times, slowed = (ALONE, SLOWED_ALONE) if alone else (1, SLOWED)
        return max(times * self._mixed_us(plain_us), slowed * plain_us) - plain_us

    def _plain_us(self, decoded: int) -> float:
        """What a step takes that decodes so many tokens and has no prompts."""
        return self._decodes.first_us + self._decodes.second_us * decoded

    def _mixed_us(self, plain_us: float) -> float:
        """What a step with several prompts may take."""
        if self._mixed_ms is not None:
            return self._mixed_ms * US_PER_MS
        least_us, most_us = MIXED_MS_MIN * US_PER_MS, MIXED_MS_MAX * US_PER_MS
        return min(max(PLAIN_STEPS * plain_us, least_us), most_us)
