"""The route receipt: which nodes were weighed, what each would have cost, and why this one."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import msgspec

from controlplane.gateway.nodes.link import NodeLink
from controlplane.gateway.nodes.means import FleetMeans
from controlplane.gateway.s4_route.cost import Choice, explain
from controlplane.gateway.s4_route.prefix import IndexState, Overlap, Sought

CANDIDATES_MAX = 8
MS_PER_S = 1000.0


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One node that was weighed. `cost_ms` is the sum of the parts after it."""

    node: str
    cached_tokens: int
    queued_tokens: int
    active: int
    cost_ms: float
    wait_ms: float
    prefill_ms: float
    active_ms: float
    busy_ms: float
    evict_ms: float
    overflow_ms: float


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What routing knew and did; the cheapest candidates first."""

    rule: str
    node: str
    why: str
    index: IndexState
    available_tokens: int
    predicted_cached_tokens: int
    candidates: tuple[Candidate, ...]


def make_receipt(
    sought: Sought,
    nodes: Sequence[NodeLink],
    overlap: Overlap,
    choice: Choice,
    *,
    means: FleetMeans,
    now_s: float,
) -> Receipt:
    """The receipt of a choice among `nodes`."""
    cheapest = nsmallest(CANDIDATES_MAX, range(len(nodes)), key=choice.costs.__getitem__)
    if choice.place not in cheapest:
        cheapest[-1] = choice.place
    candidates = tuple(
        _candidate(nodes[place], overlap.cached[place], sought, means, now_s) for place in cheapest
    )
    return Receipt(
        rule=sought.rule,
        node=nodes[choice.place].identity.name,
        why=_why(sought, overlap, candidates, nodes[choice.place].identity.name, len(nodes)),
        index=overlap.index,
        available_tokens=overlap.available,
        predicted_cached_tokens=overlap.expected[choice.place],
        candidates=candidates,
    )


def _candidate(
    link: NodeLink, cached: int, sought: Sought, means: FleetMeans, now_s: float
) -> Candidate:
    account = link.account
    parts = explain(account, sought.tokens - cached, means, now_s=now_s)
    wait, prefill, active, busy, evict, overflow = (
        round(part * MS_PER_S, 3) for part in msgspec.structs.astuple(parts)
    )
    return Candidate(
        node=link.identity.name,
        cached_tokens=cached,
        queued_tokens=account.queued_tokens,
        active=account.active + account.told.others_active,
        cost_ms=round(wait + prefill + active + busy + evict + overflow, 3),
        wait_ms=wait,
        prefill_ms=prefill,
        active_ms=active,
        busy_ms=busy,
        evict_ms=evict,
        overflow_ms=overflow,
    )


def _why(
    sought: Sought, overlap: Overlap, candidates: Sequence[Candidate], name: str, weighed: int
) -> str:
    """One sentence of facts."""
    if weighed == 1:
        return f"{name} was the only node with room."
    if overlap.index == "ring":
        return (
            "No node's cache is known, so the beginning of the prompt chose the node, "
            f"and {name} had no more than its share of the load."
        )
    chosen = next(each for each in candidates if each.node == name)
    had = f"{chosen.cached_tokens:,} of {sought.tokens:,} prompt tokens cached"
    most = max(candidates, key=lambda each: each.cached_tokens)
    stale = " (some by what was sent there, since its events are late)"
    doubt = stale if overlap.index == "stale" else ""
    if chosen.cached_tokens == most.cached_tokens == 0:
        reason = f"No node had this prompt cached, and {name} had the lowest expected cost"
    elif chosen.cached_tokens == most.cached_tokens:
        reason = f"{name} had {had}{doubt} and the lowest expected cost"
    else:
        reason = (
            f"{name} had {had}{doubt}; {most.node} had {most.cached_tokens:,}, but with "
            f"{most.queued_tokens:,} tokens waiting and {most.active} requests it would have cost "
            f"{most.cost_ms:,.0f} ms"
        )
    return f"{reason}: {chosen.cost_ms:,.0f} ms among {weighed} nodes."
