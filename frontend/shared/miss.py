"""Why prompt tokens were not in the cache, as a request's page tells it."""

from dataclasses import dataclass, field

from controlplane.kernel.money import usd_short
from controlplane.kernel.receipt import Miss, PromptChange
from frontend.shared import formats

# What happened, and what can be done about it.
CAUSES = {
    "no_cache": (
        "The engine that served it has no prefix cache.",
        "Nothing could be cached; use an engine with a prefix cache.",
    ),
    "below_block_size": (
        "The prompt is shorter than one block of the cache.",
        "It cannot be reused; no action is needed.",
    ),
    "not_kept": (
        "The chosen node was expected to have this prefix but had evicted it.",
        "It was evicted in the meantime. If this happens often, the pool's cache is too small.",
    ),
    "other_node": (
        "Another node had more of this prefix, but its queue was too long.",
        "If this happens often, the pool needs more nodes.",
    ),
    "evicted": (
        "This prefix was computed recently, but no node has it any more.",
        "Add cache, or send similar requests closer together.",
    ),
    "first_seen": (
        "No similar prompt was seen recently.",
        "The next request with the same beginning can reuse it.",
    ),
    "tools_reordered": (
        "The same tools were sent in a different order.",
        "Send tools in a fixed order: they are at the beginning of the prompt.",
    ),
    "timestamp": (
        "A date or time changed early in the prompt; the text after it is unchanged.",
        "Move it to the end of the prompt, or round it: everything after it is computed again.",
    ),
    "identifier": (
        "An identifier changed early in the prompt; the text after it is unchanged.",
        "Move it to the end of the prompt: everything after it is computed again.",
    ),
    "number": (
        "A number changed early in the prompt; the text after it is unchanged.",
        "Move what changes to the end of the prompt: everything after it is computed again.",
    ),
    "text": (
        "Some text changed early in the prompt; the text after it is unchanged.",
        "Put fixed text first: everything after a change is computed again.",
    ),
    "new_text": (
        "The prompt has new text.",
        "This is expected for a new question; no action is needed.",
    ),
}
ELSEWHERE = "Another tenant sent the same beginning recently; tenants never share a cache."


@dataclass(frozen=True)
class MissWords:
    """A sentence, advice, figures, and the text around the change where the project keeps it."""

    sentence: str
    advice: str
    elsewhere: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    around: PromptChange | None = None


def read_miss(found: Miss | None, *, staff: bool) -> MissWords | None:
    """From a request's receipt; None where nothing was missed, or for no cause that is known here.

    What other tenants sent is for staff alone.
    """
    if found is None or found.cause not in CAUSES:
        return None
    sentence, advice = CAUSES[found.cause]
    return MissWords(
        sentence=sentence,
        advice=advice,
        elsewhere=ELSEWHERE if staff and found.elsewhere else "",
        facts=_facts(found),
        around=found.around,
    )


def _facts(found: Miss) -> list[tuple[str, str]]:
    facts = []
    if found.missed_tokens:
        facts.append(("Not cached", f"{formats.count(found.missed_tokens)} tokens"))
    if found.avoidable_tokens:
        facts += [
            ("Of these avoidable", f"{formats.count(found.avoidable_tokens)} tokens"),
            ("Cost of the miss", usd_short(found.cost_nano)),
            ("Time to compute them", formats.duration(found.prefill_ms * 1_000)),
        ]
    if found.token is not None and found.block is not None:
        token, block = formats.count(found.token + 1), formats.count(found.block + 1)
        facts.append(("Differs from", f"token {token}, block {block}"))
    return facts
