"""Why prompt tokens were not in the cache, as a request's page tells it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from controlplane.kernel.money import usd_short
from frontend import formats

# What happened, and what can be done about it.
CAUSES = {
    "no_cache": (
        "The engine that served it keeps no prefixes.",
        "Nothing could be cached; serve the model by an engine with a prefix cache.",
    ),
    "below_block_size": (
        "The prompt is shorter than one block of the cache.",
        "Nothing of it can be reused; there is nothing to do.",
    ),
    "not_kept": (
        "The chosen node was believed to have this prefix, and no longer had it.",
        "It was evicted on the way there. If this happens often, the pool's cache is too small.",
    ),
    "other_node": (
        "Another node had more of this prefix, but was too busy to be worth the wait.",
        "If this happens often, the pool needs more nodes.",
    ),
    "evicted": (
        "This prefix was computed lately, and no node has it any more.",
        "More cache, or requests of one kind closer together, would keep it.",
    ),
    "first_seen": (
        "Nothing like this prompt was seen lately.",
        "The next request with the same beginning will find it.",
    ),
    "tools_reordered": (
        "The same tools came in another order than before.",
        "Send tools in one fixed order: they stand at the beginning of the prompt.",
    ),
    "timestamp": (
        "A date or time changed early in the prompt; what follows it is as before.",
        "Move it to the end of the prompt, or round it: all that follows it is computed anew.",
    ),
    "identifier": (
        "An identifier changed early in the prompt; what follows it is as before.",
        "Move it to the end of the prompt: all that follows it is computed anew.",
    ),
    "number": (
        "A number changed early in the prompt; what follows it is as before.",
        "Move what changes to the end of the prompt: all that follows it is computed anew.",
    ),
    "text": (
        "Some text changed early in the prompt; what follows it is as before.",
        "Put what stays the same first: all that follows a change is computed anew.",
    ),
    "new_text": (
        "The prompt has text that no earlier one had.",
        "That is what a new question looks like; there is nothing to do.",
    ),
}
ELSEWHERE = "Another tenant has sent the same beginning lately; tenants never share a cache."


@dataclass(frozen=True)
class Miss:
    """A sentence, advice, figures, and the text around the change where the project keeps it."""

    sentence: str
    advice: str
    elsewhere: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    around: dict[str, str] = field(default_factory=dict)


def read_miss(data: bytes, *, staff: bool) -> Miss | None:
    """From a request's receipt; None where nothing was missed or it cannot be read.

    What other tenants sent is for staff alone.
    """
    try:
        told = msgspec.json.decode(data, type=dict[str, Any]).get("miss") if data else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(told, dict) or told.get("cause") not in CAUSES:
        return None
    sentence, advice = CAUSES[told["cause"]]
    around = told.get("around")
    return Miss(
        sentence=sentence,
        advice=advice,
        elsewhere=ELSEWHERE if staff and told.get("elsewhere") else "",
        facts=_facts(told),
        around={name: str(text) for name, text in around.items()} if around else {},
    )


def _facts(told: dict[str, Any]) -> list[tuple[str, str]]:
    facts = []
    if told.get("missed_tokens"):
        facts.append(("Not cached", f"{formats.count(told['missed_tokens'])} tokens"))
    if told.get("avoidable_tokens"):
        facts += [
            ("Of these avoidable", f"{formats.count(told['avoidable_tokens'])} tokens"),
            ("What that cost", usd_short(told.get("cost_nano", 0))),
            ("Time to compute them", formats.duration(told.get("prefill_ms", 0) * 1_000)),
        ]
    if told.get("token") is not None:
        token, block = formats.count(told["token"] + 1), formats.count(told["block"] + 1)
        facts.append(("Left the earlier prompt at", f"token {token}, block {block}"))
    return facts
