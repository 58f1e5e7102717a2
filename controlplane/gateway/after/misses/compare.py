"""Two prompts side by side: where they part, where they agree again, and what stands in between.

Prompts are packed, four bytes a token, so that equality is one comparison of memory.
"""

import re
from array import array
from collections.abc import Iterator, Sequence

import msgspec

from controlplane.kernel.gallop import last_true
from controlplane.kernel.receipt import PromptChange

TOKEN_BYTES = 4
# A place where two prompts agree again is looked for this far behind the one where they part. A
# UUID takes about 30 tokens of a vocabulary of 4,096.
GAP_TOKENS_MAX = 48
AGREE_TOKENS = 12


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """Where a prompt leaves an earlier one: they share `shared` tokens, then differ in `now`
    tokens against `was`, then agree for another `again`.
    """

    shared: int
    was: int
    now: int
    again: int


def pack(tokens: Sequence[int]) -> bytes:
    return array("I", tokens).tobytes()


def part(was: bytes, now: bytes) -> Parting:
    """Compare an earlier packed prompt with this one."""
    shared = _run(was, now, 0, 0)
    was_left, now_left = len(was) // TOKEN_BYTES - shared, len(now) // TOKEN_BYTES - shared
    found = _gap(was, now, shared)
    if found is None:
        return Parting(shared=shared, was=was_left, now=now_left, again=0)
    behind_was, behind_now = found
    again = _run(was, now, shared + behind_was, shared + behind_now)
    return Parting(shared=shared, was=behind_was, now=behind_now, again=again)


def _gap(was: bytes, now: bytes, shared: int) -> tuple[int, int] | None:
    """How many tokens of each stand before they agree again, the fewest of both together: a changed
    word is not told as a changed page. None where they do not.
    """
    places: dict[bytes, int] = {}
    for behind, window in _windows(was, shared):
        places.setdefault(window, behind)
    gaps = [
        (places[window], behind) for behind, window in _windows(now, shared) if window in places
    ]
    return min(gaps, key=lambda gap: (sum(gap), gap), default=None)


def _windows(packed: bytes, shared: int) -> Iterator[tuple[int, bytes]]:
    """The next tokens at each place that may be where they agree again."""
    most = min(GAP_TOKENS_MAX, len(packed) // TOKEN_BYTES - shared - AGREE_TOKENS)
    for behind in range(most + 1):
        at = (shared + behind) * TOKEN_BYTES
        yield behind, packed[at : at + AGREE_TOKENS * TOKEN_BYTES]


def _run(first: bytes, second: bytes, start_first: int, start_second: int) -> int:
    """How many tokens are equal from two places on: doubling, then halving."""
    a, b = start_first * TOKEN_BYTES, start_second * TOKEN_BYTES
    most = min(len(first) - a, len(second) - b) // TOKEN_BYTES

    def same(low: int, high: int) -> bool:
        low, high = low * TOKEN_BYTES, high * TOKEN_BYTES
        return first[a + low : a + high] == second[b + low : b + high]

    return last_true(most, same)


# What changes from call to call by its nature. The order matters: a date is also a number.
VOLATILE = (
    ("timestamp", re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}:\d\d(:\d\d)?|\b1\d{9}(\d{3})?\b")),
    ("identifier", re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}|\b(?=\w*\d)[0-9a-zA-Z_-]{12,}")),
    ("number", re.compile(r"\d")),
)


def kind_of(change: PromptChange) -> str:
    """What the difference is a part of in both: timestamp, identifier, number or text."""
    for kind, pattern in VOLATILE:
        if _touched(change, pattern, change.was) and _touched(change, pattern, change.now):
            return kind
    return "text"


def _touched(change: PromptChange, pattern: re.Pattern[str], middle: str) -> bool:
    start, stop = len(change.before), len(change.before) + len(middle)
    found = pattern.finditer(change.before + middle + change.after)
    return any(match.start() < stop and match.end() > start for match in found)
