"""The likely cause of a miss, what it cost, and where the prompt left the one before it.

Prompts are packed, four bytes a token, so that equality is one comparison of memory.

Causes, in the order in which they are tried:
`no_cache` the engine keeps no prefixes; `below_block_size` nothing in so short a prompt can be
cached; `not_kept` the chosen node was believed to have it, and did not; `other_node` another node
had more of it, but cost more; `evicted` it was computed lately and no node has it any more;
`first_seen` nothing like it was seen lately;
`tools_reordered` the same tools came in another order; `new_text` the prompt has text that no
earlier one had; `timestamp`, `identifier`, `number`, `text` such a thing changed, and what follows
it is as before.
"""

import re
from array import array
from collections.abc import Iterator, Sequence

import msgspec

from controlplane.gateway.after.misses.history import Seen
from controlplane.gateway.nodes.measured.gallop import last_true
from controlplane.kernel.receipt import Miss, PromptChange
from inference.text.model_text import ModelText

TOKEN_BYTES = 4
# A place where two prompts agree again is looked for this far behind the one where they part. A
# UUID takes about 30 tokens of a vocabulary of 4,096.
GAP_TOKENS_MAX = 48
AGREE_TOKENS = 12
AROUND_TOKENS = 24


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


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache was asked for and gave, in tokens: `delivered` by the engine, `predicted` at
    the chosen node and `available` at the best one when the request was routed. `caches`: the
    engine keeps prefixes at all.
    """

    caches: bool
    block_size: int
    prompt: int
    delivered: int
    predicted: int
    available: int

    @property
    def possible(self) -> int:
        """All full blocks but for the last token, which is always computed."""
        return (self.prompt - 1) // self.block_size * self.block_size

    @property
    def missed(self) -> int:
        """Tokens that a warm cache would have had."""
        return max(0, self.possible - self.delivered)


def explain(
    now: Seen,
    earlier: Seen | None,
    *,
    offered: Offered,
    blocks_seen: int,
    elsewhere: bool,
    text: ModelText,
) -> Miss:
    """For a prompt of which tokens were missed; `blocks_seen` are those shared with `earlier`."""
    seen_tokens = min(blocks_seen * offered.block_size, offered.possible)
    if seen_tokens > offered.delivered or offered.available > offered.delivered:
        return _lost(offered, seen_tokens)
    if earlier is None or not _alike(parting := part(earlier.tokens, now.tokens), offered):
        return Miss(cause="first_seen", missed_tokens=offered.missed, elsewhere=elsewhere)
    return _changed(now, earlier, parting, offered, text)


def _alike(parting: Parting, offered: Offered) -> bool:
    """Whether the earlier prompt is this one's kin rather than any prompt."""
    return max(parting.shared, parting.again) >= offered.block_size


def _lost(offered: Offered, seen_tokens: int) -> Miss:
    """It was computed before: who had it, and why it was of no use."""
    if offered.predicted > offered.delivered:
        cause, had = "not_kept", offered.predicted
    elif offered.available > offered.delivered:
        cause, had = "other_node", offered.available
    else:
        cause, had = "evicted", seen_tokens
    return Miss(
        cause=cause,
        missed_tokens=offered.missed,
        avoidable_tokens=min(had - offered.delivered, offered.missed),
    )


def _changed(now: Seen, earlier: Seen, parting: Parting, offered: Offered, text: ModelText) -> Miss:
    """The prompts part: at what, and how much would be cached had they not."""
    around = _around(now, earlier, parting, text)
    if now.tools != earlier.tools and sorted(now.tools) == sorted(earlier.tools):
        cause = "tools_reordered"
    elif not parting.again:
        cause = "new_text"
    else:
        cause = kind_of(around)
    whole = parting.again // offered.block_size * offered.block_size
    return Miss(
        cause=cause,
        missed_tokens=offered.missed,
        avoidable_tokens=min(whole, offered.missed),
        block=parting.shared // offered.block_size,
        token=parting.shared,
        around=around,
    )


def _around(now: Seen, earlier: Seen, parting: Parting, text: ModelText) -> PromptChange:
    shared = parting.shared
    was_stop = shared + min(parting.was, AROUND_TOKENS)
    now_stop = shared + min(parting.now, AROUND_TOKENS)
    after_stop = now_stop + min(parting.again, AROUND_TOKENS)
    return PromptChange(
        before=_decoded(now, max(0, shared - AROUND_TOKENS), shared, text),
        was=_decoded(earlier, shared, was_stop, text),
        now=_decoded(now, shared, now_stop, text),
        after=_decoded(now, now_stop, after_stop, text),
    )


def _decoded(seen: Seen, start: int, stop: int, text: ModelText) -> str:
    tokens = memoryview(seen.tokens).cast("I")[start:stop]
    return b"".join(text.token_text(token)[1] for token in tokens).decode("utf-8", "replace")
