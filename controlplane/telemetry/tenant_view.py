"""A recorded request as its tenant sees it: the pool by name, its nodes only by numbers.

Names of nodes and their loads, which other tenants' traffic makes, are the operator's alone. Of the
nodes that were weighed a tenant learns how many there were, how much of its own prompt each had
cached, and which was chosen.
"""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.telemetry.models import RequestRecord

HIDDEN = frozenset(("node", "why", "candidates", "attempts"))


class _Weighed(msgspec.Struct):
    node: str
    cached_tokens: int = 0
    prefill_ms: float | msgspec.UnsetType = msgspec.UNSET


class _Tried(msgspec.Struct):
    node: str


class _Nodes(msgspec.Struct):
    """What a receipt says of nodes; `node` is empty where none was chosen."""

    node: str = ""
    index: str = ""
    candidates: list[_Weighed] = []
    attempts: list[_Tried] = []


def hide_nodes(record: RequestRecord) -> RequestRecord:
    """The same row, unsaved, without its node; lists leave the receipt out, and so does this."""
    record.node = ""
    if "receipt" not in record.get_deferred_fields():
        record.receipt = tenant_receipt(bytes(record.receipt))
    return record


def tenant_receipt(receipt: bytes) -> bytes:
    """A receipt with numbers for nodes, cheapest first; empty where it cannot be read."""
    if not receipt:
        return b""
    try:
        told = msgspec.json.decode(receipt, type=dict[str, Any])
        nodes = msgspec.convert(told, _Nodes)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return b""
    shown = _shown(nodes)
    kept = {name: shown.get(name, value) for name, value in told.items()}
    return msgspec.json.encode(
        {name: value for name, value in kept.items() if name not in HIDDEN - shown.keys()}
    )


def _shown(nodes: _Nodes) -> dict[str, object]:
    """What takes the place of the hidden parts that are there."""
    weighed, tried = ([each.node for each in rows] for rows in (nodes.candidates, nodes.attempts))
    chosen = [nodes.node] if nodes.node else []
    names = dict.fromkeys((*weighed, *chosen, *tried))
    labels = {name: f"Node {number}" for number, name in enumerate(names, 1)}
    shown: dict[str, object] = {}
    if nodes.candidates:
        shown["candidates"] = [
            {**msgspec.to_builtins(each), "node": labels[each.node]} for each in nodes.candidates
        ]
    if nodes.attempts:
        shown["attempts"] = [{"node": labels[each.node]} for each in nodes.attempts]
    if nodes.node:
        shown |= {"node": labels[nodes.node], "why": _why(nodes, labels)}
    return shown


def _why(nodes: _Nodes, labels: dict[str, str]) -> str:
    """The gateway's sentence without costs: they tell what others had under way there."""
    chosen = next((each for each in nodes.candidates if each.node == nodes.node), None)
    if chosen is None or len(nodes.candidates) == 1:
        return "One node had room."
    name = labels[nodes.node]
    if nodes.index == "ring":
        return f"No node's cache is known, so the beginning of the prompt chose {name}."
    most = max(nodes.candidates, key=lambda each: each.cached_tokens)
    if most.cached_tokens == 0:
        return f"No node had this prompt cached, and {name} had the lowest expected cost."
    had = f"{name} had {chosen.cached_tokens:,} prompt tokens cached"
    if nodes.index == "stale":
        had += " (as far as is known: the events of some nodes are late)"
    if chosen.cached_tokens == most.cached_tokens:
        return f"{had} and the lowest expected cost."
    return f"{had}; {labels[most.node]} had {most.cached_tokens:,}, but was too busy."
