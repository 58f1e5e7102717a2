"""A recorded request as its tenant sees it: the pool by name, its nodes only by numbers.

Names of nodes and their loads, which other tenants' traffic makes, are the operator's alone. Of the
nodes that were weighed a tenant learns how many there were, how much of its own prompt each had
cached, and which was chosen.
"""

import msgspec

from controlplane.kernel.receipt import (
    NodeAttempt,
    Receipt,
    WeighedNode,
    read_receipt,
    write_receipt,
)
from controlplane.telemetry.models import RequestRecord


def hide_nodes(record: RequestRecord) -> RequestRecord:
    """The same row, unsaved, without its node; lists leave the receipt out, and so does this."""
    record.node = ""
    if "receipt" not in record.get_deferred_fields():
        receipt = tenant_receipt(read_receipt(bytes(record.receipt)))
        record.receipt = write_receipt(receipt)
    return record


def tenant_receipt(receipt: Receipt) -> Receipt:
    """A receipt with numbers for nodes, cheapest first."""
    weighed, tried = receipt.candidates, receipt.attempts
    chosen = [receipt.node] if receipt.node else []
    names = [*(each.node for each in weighed), *chosen, *(each.node for each in tried)]
    labels = {name: f"Node {number}" for number, name in enumerate(dict.fromkeys(names), 1)}
    return msgspec.structs.replace(
        receipt,
        node=labels.get(receipt.node, ""),
        why=_why(receipt, labels) if receipt.node else "",
        candidates=tuple(
            WeighedNode(
                node=labels[each.node],
                cached_tokens=each.cached_tokens,
                prefill_ms=each.prefill_ms,
            )
            for each in weighed
        ),
        attempts=tuple(NodeAttempt(labels[each.node]) for each in tried),
    )


def _why(receipt: Receipt, labels: dict[str, str]) -> str:
    """The gateway's sentence without costs: they tell what others had under way there."""
    weighed = receipt.candidates
    chosen = next((each for each in weighed if each.node == receipt.node), None)
    if chosen is None or len(weighed) == 1:
        return "One node had room."
    name = labels[receipt.node]
    if receipt.index == "ring":
        return f"No node's cache is known, so the beginning of the prompt chose {name}."
    most = max(weighed, key=lambda each: each.cached_tokens)
    if most.cached_tokens == 0:
        return f"No node had this prompt cached, and {name} had the lowest expected cost."
    had = f"{name} had {chosen.cached_tokens:,} prompt tokens cached"
    if receipt.index == "stale":
        had += " (as far as is known: the events of some nodes are late)"
    if chosen.cached_tokens == most.cached_tokens:
        return f"{had} and the lowest expected cost."
    return f"{had}; {labels[most.node]} had {most.cached_tokens:,}, but was too busy."
