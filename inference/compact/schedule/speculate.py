"""Speculation by prompt lookup: drafts what followed the last tokens where they occurred before.

A chunk computes the last token and its drafts at once, and each of its rows is sampled with the
random number of its own position. Drafts are kept as long as they equal the sampled tokens. That is
rejection sampling with a point-mass proposal (Leviathan et al., 2023) in which the rejected
sample is the replacement, so the text is the same as without drafts. No torch, no clock.
"""

from dataclasses import dataclass

from inference.compact.schedule.request import TOKEN_BYTES, Sequence

# Lengths of the endings that are looked up, longest first, and how far back, in tokens.
NGRAMS = (4, 3, 2)
LOOKBACK_TOKENS = 4096
# Above so many running sequences a step is bound by arithmetic, and drafts only cost.
RUNNING_MAX = 8
# Share of a new figure in a running mean.
SHARE = 0.15
# A step's time is known by its lower quartile: on a shared machine many steps are interrupted.
# Steps down are larger than steps up, three to one, so three of four times lie above.
DOWN = 0.15
UP = 0.05
# Steps with drafts before their time is used: the first ones vary.
SEEN_MIN = 16
# A sequence whose drafts do not pay is tried again after so many tokens; and every so many steps
# nothing is drafted, to know what a step without drafts takes.
RETRY_TOKENS = 48
PLAIN_EVERY = 64


def lookup(packed: bytearray, count: int) -> list[int]:
    """Up to `count` tokens that followed the latest earlier occurrence of the last ones."""
    first = max(0, len(packed) - LOOKBACK_TOKENS * TOKEN_BYTES)
    for length in NGRAMS:
        ending = bytes(packed[-length * TOKEN_BYTES :])
        found = packed.rfind(ending, first, len(packed) - TOKEN_BYTES)
        if found < 0 or found % TOKEN_BYTES:
            # Bytes that only look like the tokens, across their borders, count as not found.
            continue
        start = found + len(ending)
        return memoryview(packed[start : start + count * TOKEN_BYTES]).cast("I").tolist()
    return []


def note_drafts(sequence: Sequence, drafted: int, accepted: int) -> None:
    sequence.acceptance += SHARE * (accepted / drafted - sequence.acceptance)
    sequence.retry_at = sequence.generated + RETRY_TOKENS


@dataclass(slots=True)
class StepTime:
    """What steps of one kind take, microseconds, and how many drafts they have on average."""

    us: float = 0.0
    drafted: float = 0.0
    seen: int = 0

    def add(self, step_us: int, drafted: int) -> None:
        self.seen += 1
        if self.seen == 1:
            self.us, self.drafted = float(step_us), float(drafted)
        elif step_us < self.us:
            self.us = max(float(step_us), self.us * (1.0 - DOWN))
        else:
            self.us = min(float(step_us), self.us * (1.0 + UP))
        self.drafted += SHARE * (drafted - self.drafted)


class Speculator:
    """Proposes drafts, and learns from steps whether they pay.

    A draft pays if its probability of acceptance exceeds its cost, in units of what a token takes
    without drafts. `always` skips that comparison.
    """

    def __init__(self, drafts_max: int, *, always: bool) -> None:
        self.drafts_max = drafts_max
        self.always = always
        self._plain = [StepTime() for _ in range(RUNNING_MAX + 1)]
        self._drafting = [StepTime() for _ in range(RUNNING_MAX + 1)]
        self._steps = 0

    def begin(self, decoding: int) -> bool:
        """Whether this step, with so many decoding sequences, may have drafts at all."""
        self._steps += 1
        if decoding > RUNNING_MAX:
            return False
        return self.always or bool(self._steps % PLAIN_EVERY and self._plain[decoding].seen)

    def may_draft(self, running: list[Sequence]) -> bool:
        """Whether drafts may pay for any of these in the next step."""
        decoding = [each for each in running if each.left == 1]
        count = len(decoding)
        if not 1 <= count <= RUNNING_MAX:
            return False
        known = self.always or self._plain[count].seen > 0
        return known and (self.always or any(self._pays(each, count) for each in decoding))

    def propose(self, sequence: Sequence, room: int, decoding: int) -> list[int]:
        """Drafts for a sequence, at most `room`."""
        asked = sequence.request.job.sampling
        room = min(room, self.drafts_max, asked.max_tokens - sequence.generated - 1)
        if room < 1 or not (self.always or self._pays(sequence, decoding)):
            return []
        return lookup(sequence.packed, room)

    def measure(self, decoding: int, drafted: int, step_us: int) -> None:
        """Note what a step without prompt tokens took, with so many drafts in all."""
        if 1 <= decoding <= RUNNING_MAX:
            kinds = self._drafting if drafted else self._plain
            kinds[decoding].add(step_us, drafted)

    def cost(self, decoding: int) -> float:
        """What one draft costs, in units of the time of a token without drafts; 0 if unknown."""
        plain, drafting = self._plain[decoding], self._drafting[decoding]
        if not plain.seen or drafting.seen < SEEN_MIN:
            return 0.0
        return max(0.0, drafting.us / plain.us - 1.0) * decoding / drafting.drafted

    def _pays(self, sequence: Sequence, decoding: int) -> bool:
        cost = self.cost(decoding)
        return sequence.acceptance > cost or sequence.generated >= sequence.retry_at
