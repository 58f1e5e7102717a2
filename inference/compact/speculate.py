"""Speculation by prompt lookup: guesses what follows from where the last tokens stood before.

A chunk computes the last token and its drafts at once, and each of its rows is drawn from with the
random number of its own position. Drafts are kept as long as they are what was drawn. That is
rejection sampling with a point-mass proposal (Leviathan et al., 2023) in which the rejected draw
is the replacement, so the text is the same as without drafts. No torch, no clock of its own.
"""

from __future__ import annotations

from inference.compact.request import TOKEN_BYTES, Sequence

# Lengths of the endings that are looked up, longest first, and how far back, in tokens.
NGRAMS = (4, 3, 2)
LOOKBACK_TOKENS = 4096
# Above so many running sequences a step is bound by arithmetic, and drafts only cost.
RUNNING_MAX = 8
# Share of a new figure in a running mean, and how much a single step may count against it.
SHARE = 0.15
OUTLIER = 3.0
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
    """Note how many of a sequence's drafts were accepted."""
    sequence.acceptance += SHARE * (accepted / drafted - sequence.acceptance)
    sequence.retry_at = sequence.generated + RETRY_TOKENS


class Speculator:
    """Proposes drafts, and learns from steps whether they pay.

    A draft pays if its chance to be accepted is larger than its cost, in units of what a token
    takes without drafts. `always` skips that comparison.
    """

    def __init__(self, drafts_max: int, *, always: bool) -> None:
        self.drafts_max = drafts_max
        self.always = always
        self._plain_us = [0.0] * (RUNNING_MAX + 1)
        self._cost = [0.0] * (RUNNING_MAX + 1)
        self._steps = 0

    def begin(self, decoding: int) -> bool:
        """Whether this step, with so many decoding sequences, may have drafts at all."""
        self._steps += 1
        if decoding > RUNNING_MAX:
            return False
        return self.always or bool(self._steps % PLAIN_EVERY and self._plain_us[decoding])

    def propose(self, sequence: Sequence, room: int, decoding: int) -> list[int]:
        """Drafts for a sequence, at most `room`."""
        asked = sequence.request.job.sampling
        room = min(room, self.drafts_max, asked.max_tokens - sequence.generated - 1)
        if room < 1 or not (self.always or self._pays(sequence, decoding)):
            return []
        return lookup(sequence.packed, room)

    def measure(self, decoding: int, drafted: int, step_us: int) -> None:
        """Note what a step without prompt tokens took, with so many drafts in all."""
        if not 1 <= decoding <= RUNNING_MAX:
            return
        plain_us = self._plain_us[decoding]
        if not drafted:
            seen_us = min(step_us, OUTLIER * plain_us) if plain_us else step_us
            self._plain_us[decoding] += (SHARE if plain_us else 1.0) * (seen_us - plain_us)
        elif plain_us:
            extra = min(max(step_us / plain_us - 1.0, 0.0), OUTLIER)
            cost = extra * decoding / drafted
            self._cost[decoding] += SHARE * (cost - self._cost[decoding])

    def _pays(self, sequence: Sequence, decoding: int) -> bool:
        if sequence.acceptance > self._cost[decoding]:
            return True
        return sequence.generated >= sequence.retry_at
