"""The likely cause of a miss, what it cost, and where the prompt left the one before it.

Causes, in the order in which they are tried:
`no_cache` the engine keeps no prefixes; `below_block_size` nothing in so short a prompt can be
cached; `not_kept` the chosen node was believed to have it, and did not; `other_node` another node
had more of it, but cost more; `evicted` it was computed lately and no node has it any more;
`first_seen` nothing like it was seen lately;
`tools_reordered` the same tools came in another order; `new_text` the prompt has text that no
earlier one had; `timestamp`, `identifier`, `number`, `text` such a thing changed, and what follows
it is as before.
"""

import msgspec

from controlplane.gateway.after.misses.compare import Parting, kind_of, part
from controlplane.gateway.after.misses.history import Seen
from controlplane.kernel.receipt import Miss, PromptChange
from inference.text.model_text import ModelText

AROUND_TOKENS = 24


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
