"""Prompt hygiene: tokens that a request spends for nothing, found by pure checks of bounded input.

Findings are kinds and counts. No text of a prompt is in them, and none is kept.
"""

import json
import re
from collections.abc import Iterable

import msgspec

from controlplane.kernel.price import Price, TokenCounts, charge_nano

# Of all texts of a request together, from the first on; what comes after is not looked at.
CHARS_MAX = 16_384
# Places where JSON may begin, and characters that may be read of blocks that turn out to be none.
STARTS_MAX = 32
DEAD_CHARS_LEAST = 48
PROMPT_TOKENS_LARGE = 8_192
# A prompt of more than this part of the context window is large, however small the window.
WINDOW_PARTS_LARGE = 2
ANSWER_TOKENS_LONG = 512
RETRY_S = 60.0
# An unstreamed answer of more tokens is one that somebody waits for.
WAITED_TOKENS_LEAST = 64
TOOL_TOKENS_LEAST = 256
TOOLS_S = 600.0
# A refused request waits as long as `Retry-After` says before it comes again, and at least this.
BACK_OFF_S = 1.0

DEAD_JSON, OVERSIZED = "dead_json", "oversized_prompt"
VOLATILE, UNBOUNDED, RETRY = "volatile_prefix", "unbounded_output", "retry"
NOT_STREAMED, HASTY, TOOLS_AGAIN = "not_streamed", "hasty_retry", "tools_again"
# What it is, and how to end it; in the order in which findings are told.
KINDS: dict[str, tuple[str, str]] = {
    DEAD_JSON: (
        "JSON with empty, null or repeated fields, or printed with white space",
        "Write it without white space, and leave out the fields that say nothing.",
    ),
    OVERSIZED: (
        f"A prompt of over {PROMPT_TOKENS_LARGE:,} tokens, or half of the context window",
        "Send fewer or shorter retrieved passages, and summarize old turns.",
    ),
    VOLATILE: (
        "Something near the beginning changes with every call, so the cache is of no use",
        "Move times, ids and counters behind everything that stays; keep tools in one order.",
    ),
    UNBOUNDED: (
        f"No max_tokens, and an answer that may pass {ANSWER_TOKENS_LONG:,} tokens",
        "Name max_tokens; it also lowers what is reserved of budgets and token limits.",
    ),
    RETRY: (
        f"The same request again within {RETRY_S:.0f} seconds",
        "Send an Idempotency-Key, so that a retry is answered without being charged again.",
    ),
    NOT_STREAMED: (
        f"Not streamed, and an answer that may pass {WAITED_TOKENS_LEAST} tokens",
        "Stream: the first token comes at once, and a client that leaves stops paying.",
    ),
    HASTY: (
        "The same request again after a refusal, sooner than Retry-After said",
        "Wait as long as Retry-After says, and twice as long each time, with some chance in it.",
    ),
    TOOLS_AGAIN: (
        f"The same tool schemas of over {TOOL_TOKENS_LEAST} tokens as shortly before",
        "Offer only the tools of this step, always in one order, and name a prompt_cache_key.",
    ),
}
_START = re.compile(r'[{\[](?=\s{0,256}["{\[\d-])')


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """What of JSON blocks says nothing: characters in all, and fields by reason."""

    chars: int = 0
    nulls: int = 0
    empties: int = 0
    repeated: int = 0


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one request. `texts` are its messages; counts are tokens.

    `output_tokens` were generated, or may be; `named_bound` is True where the client bounded them.
    `volatile_tokens` and `volatile_nano` are what a changing beginning has cost; `repeated` says
    that the same request came shortly before, `hasty` that it was refused then and told to wait for
    longer. `tool_chars` is the size of tool schemas; `tools_again`: the same came shortly before.
    """

    texts: tuple[str, ...]
    prompt_tokens: int
    cached_tokens: int
    window_tokens: int
    output_tokens: int
    named_bound: bool
    price: Price
    volatile_tokens: int = 0
    volatile_nano: int = 0
    repeated: bool = False
    hasty: bool = False
    streams: bool = True
    tool_chars: int = 0
    tools_again: bool = False


class WasteFinding(msgspec.Struct, frozen=True):
    """One kind of waste: tokens and nano-USD that mending it would save, as an estimate.

    Streaming saves no tokens but the wait for them; backing off saves requests.
    """

    kind: str
    tokens: int
    nano: int


def find_waste(look: Look) -> tuple[WasteFinding, ...]:
    """All findings of one request, in the order of `KINDS`; savings of several may overlap."""
    found = (
        _input(DEAD_JSON, _dead_tokens(look), look),
        _input(OVERSIZED, look.prompt_tokens - large_from(look.window_tokens), look),
        WasteFinding(VOLATILE, look.volatile_tokens, look.volatile_nano),
        _unbounded(look),
        _retry(look),
        WasteFinding(NOT_STREAMED, _waited(look), 0),
        WasteFinding(HASTY, 0, 0),
        _input(TOOLS_AGAIN, _tool_tokens(look), look),
    )
    return tuple(one for one in found if one.tokens > 0 or (one.kind == HASTY and look.hasty))


def large_from(window_tokens: int) -> int:
    """Tokens from which a prompt for a context window is called large."""
    return min(PROMPT_TOKENS_LARGE, window_tokens // WINDOW_PARTS_LARGE)


def dead_json(texts: Iterable[str]) -> Dead:
    """What JSON blocks in the texts have that says nothing; none below `DEAD_CHARS_LEAST`."""
    room, chars = CHARS_MAX, 0
    sieve = _Sieve()
    for text in texts:
        if room <= 0:
            break
        chars += _dead_chars(text[:room], sieve)
        room -= len(text)
    if chars < DEAD_CHARS_LEAST:
        return Dead()
    nulls, empties, repeated = sieve.counts
    return Dead(chars=chars, nulls=nulls, empties=empties, repeated=repeated)


class _Sieve:
    """Takes the pairs of each object as the decoder meets it; keeps those that say something."""

    def __init__(self) -> None:
        self.counts = (0, 0, 0)
        self.decoder = json.JSONDecoder(object_pairs_hook=self.kept)

    def kept(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        """The object without fields that are null, empty or given again."""
        made: dict[str, object] = {}
        nulls, empties, repeated = self.counts
        for name, value in pairs:
            repeated += name in made
            if value is None:
                nulls += 1
            elif value in ("", [], {}):
                empties += 1
            else:
                made[name] = value
        self.counts = (nulls, empties, repeated)
        return made


def _dead_chars(text: str, sieve: _Sieve) -> int:
    """Characters by which the JSON blocks of one text are longer than they need be."""
    dead = at = 0
    budget = 2 * len(text)
    for _ in range(STARTS_MAX):
        start = _START.search(text, at)
        if start is None or budget <= 0:
            break
        at = start.start()
        told = sieve.counts
        try:
            value, end = sieve.decoder.raw_decode(text, at)
            dead += max(0, end - at - len(_compact(value)))
        except json.JSONDecodeError as error:
            sieve.counts = told
            budget -= error.pos - at
            at += 1
            continue
        except (ValueError, RecursionError):
            # Numbers of too many digits, or nesting without end: nothing that a model reads.
            sieve.counts = told
            break
        budget -= end - at
        at = end
    return dead


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _dead_tokens(look: Look) -> int:
    return _as_tokens(dead_json(look.texts).chars, look)


def _tool_tokens(look: Look) -> int:
    tokens = _as_tokens(look.tool_chars, look) if look.tools_again else 0
    return tokens if tokens > TOOL_TOKENS_LEAST else 0


def _as_tokens(chars: int, look: Look) -> int:
    """At the rate that this prompt has shown."""
    whole = sum(map(len, look.texts)) + look.tool_chars
    return chars * look.prompt_tokens // whole if whole else 0


def _waited(look: Look) -> int:
    waited = 0 if look.streams else look.output_tokens
    return waited if waited > WAITED_TOKENS_LEAST else 0


def _input(kind: str, tokens: int, look: Look) -> WasteFinding:
    """Tokens of the prompt at what they cost on the average, cached ones among them."""
    if tokens <= 0 or not look.prompt_tokens:
        return WasteFinding(kind, 0, 0)
    tokens = min(tokens, look.prompt_tokens)
    return WasteFinding(kind, tokens, _prompt_nano(look) * tokens // look.prompt_tokens)


def _unbounded(look: Look) -> WasteFinding:
    long = 0 if look.named_bound else max(0, look.output_tokens - ANSWER_TOKENS_LONG)
    return WasteFinding(UNBOUNDED, long, _output_nano(look.price, long))


def _retry(look: Look) -> WasteFinding:
    if not look.repeated:
        return WasteFinding(RETRY, 0, 0)
    nano = _prompt_nano(look) + _output_nano(look.price, look.output_tokens)
    return WasteFinding(RETRY, look.prompt_tokens + look.output_tokens, nano)


def _prompt_nano(look: Look) -> int:
    counts = TokenCounts.from_usage(look.prompt_tokens, look.cached_tokens, 0)
    return charge_nano(look.price, counts)


def _output_nano(price: Price, tokens: int) -> int:
    return charge_nano(price, TokenCounts(uncached=0, cached=0, output=tokens))
