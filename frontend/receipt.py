"""The route receipt: the gateway's JSON, as a sentence and rows for a page. Data, never markup."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

WORDS = {
    "active": "Requests there",
    "active_ms": "Running requests, ms",
    "asked": "Model asked for",
    "available_tokens": "Cached tokens at the best node",
    "busy_ms": "Those behind it, ms",
    "cost_ms": "Cost in all, ms",
    "dur_ms": "Duration, ms",
    "delivered_cached_tokens": "Delivered cached tokens",
    "evict_ms": "Evicted cache, ms",
    "estimate_ms": "Estimated wait, ms",
    "index": "Prefix index",
    "overflow_ms": "No room, ms",
    "prefill_ms": "This prompt, ms",
    "queued_tokens": "Tokens waiting",
    "wait_ms": "Waiting, ms",
}
INDEX_STATES = {
    "exact": "exact",
    "stale": "late for some nodes, which count with what they were just sent",
    "ring": "none; nodes by the beginning of the prompt",
}
CAPTIONS = {
    "before": "What the client did before the call, as it says",
    "steps": "Steps of the rule, in their order",
    "attempts": "Attempts, in their order",
    "candidates": "Nodes that were weighed, cheapest first",
}


@dataclass(frozen=True)
class Table:
    """Rows under one heading; the first cell of a row names it."""

    caption: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Receipt:
    """Why in one sentence, then plain facts, then steps, attempts and the nodes weighed."""

    why: str = ""
    facts: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def read_receipt(data: bytes) -> Receipt | None:
    """None where routing left none, as for a refusal, or where it cannot be read."""
    if not data:
        return None
    try:
        document = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    # Told in their own parts of the page.
    for name in ("miss", "limit", "lack", "line"):
        document.pop(name, None)
    if not document:
        return None
    why = _text(document.pop("why", ""))
    _mark_chosen(document)
    tables = [_table(caption, document.pop(name, None)) for name, caption in CAPTIONS.items()]
    queue = document.pop("queue", None)
    if isinstance(queue, dict):
        document |= {f"queue_{name}": value for name, value in queue.items()}
    state = document.get("index")
    if isinstance(state, str):
        document["index"] = INDEX_STATES.get(state, state)
    return Receipt(
        why="" if why == "–" else why,
        facts=[(_words(name), _text(value)) for name, value in document.items()],
        tables=[table for table in tables if table is not None],
    )


def _mark_chosen(document: dict[str, Any]) -> None:
    rows = document.get("candidates")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and row.get("node") and row["node"] == document.get("node"):
            row["node"] = f"{row['node']} (chosen)"


def _table(caption: str, value: object) -> Table | None:
    rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    if not rows:
        return None
    head = list(rows[0])
    return Table(
        caption,
        [_words(name) for name in head],
        [[_text(row.get(n)) for n in head] for row in rows],
    )


def _words(name: str) -> str:
    if name in WORDS:
        return WORDS[name]
    if name.endswith("_ms"):
        name = name.removesuffix("_ms") + ", ms"
    return name.replace("_", " ").capitalize()


def _text(value: object) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return msgspec.json.encode(value).decode()
