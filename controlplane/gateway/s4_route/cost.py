"""What a request would cost on each node, in seconds; the cheapest takes it. No clock, no I/O.

`(Q + U) / P + 0.1 (A + 1) s + (k U + 2 E) / P_mean`, and what overflows its cache once more.
Q tokens wait on the node, U of this prompt are not cached there, P and s are its learned speeds,
A its active jobs. An uncached token also delays those who come behind (k, see `FleetMeans`), and
evicted tokens (E) have to be computed again by somebody: the sooner, the younger what is evicted.
These two are divided by the fleet's rate, or everything would be drawn to the fastest nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec

from controlplane.gateway.nodes.account import Account
from controlplane.gateway.nodes.means import FleetMeans

EVICT_WEIGHT = 2.0
# Learned speeds of equal nodes differ by this much, which is no reason to prefer one of them.
TIE_SHARE = 0.01


class CostParts(msgspec.Struct, frozen=True):
    """Why a node costs what it costs, in seconds; the cost is their sum.

    `wait_s` and `prefill_s` pass before the first token, `active_s` is what sharing its steps adds,
    `busy_s` what those behind lose, `evict_s` and `overflow_s` what the cache and its bound cost.
    """

    wait_s: float
    prefill_s: float
    active_s: float
    busy_s: float
    evict_s: float
    overflow_s: float


class Choice(msgspec.Struct, frozen=True):
    """The place of the chosen node, and the cost of every node in seconds."""

    place: int
    costs: list[float]


def choose(
    nodes: Sequence[Account],
    cached: Sequence[int],
    prompt_tokens: int,
    means: FleetMeans,
    *,
    now_s: float,
    draw: float,
) -> Choice:
    """The cheapest of `nodes`, of which one must have a credit; `draw` in [0, 1) breaks ties.

    `cached` are the tokens of this prompt that each node has, below `prompt_tokens`.
    """
    means.observe(nodes, now_s)
    costs = _costs(nodes, cached, prompt_tokens, means, now_s=now_s)
    bound = min(costs)
    if bound == inf:
        raise ValueError("nodes: none has a credit left")
    bound *= 1.0 + TIE_SHARE
    ties = [place for place, cost in enumerate(costs) if cost <= bound]
    return Choice(ties[int(draw * len(ties))], costs)


def cost_s(node: Account, uncached: int, means: FleetMeans, *, now_s: float) -> float:
    """The cost of one node that has a credit."""
    parts = explain(node, uncached, means, now_s=now_s)
    total: float = sum(msgspec.structs.astuple(parts))
    return total


def explain(node: Account, uncached: int, means: FleetMeans, *, now_s: float) -> CostParts:
    """The same sum, part by part."""
    queue_s = node.queued_tokens * node.token_s
    return CostParts(
        wait_s=queue_s,
        prefill_s=uncached * node.token_s,
        active_s=node.wait_s - queue_s,
        busy_s=uncached * means.copy_weight / means.prefill_tokens_per_s,
        evict_s=_evict_s(node, uncached, means, now_s),
        overflow_s=max(0.0, uncached - node.room_tokens) * node.token_s,
    )


def _costs(
    nodes: Sequence[Account],
    cached: Sequence[int],
    prompt_tokens: int,
    means: FleetMeans,
    *,
    now_s: float,
) -> list[float]:
    # One expression for each node, and the rare case apart: at a thousand nodes a call for each
    # would not be in time.
    busy_s = means.copy_weight / means.prefill_tokens_per_s
    evict_s = EVICT_WEIGHT / means.prefill_tokens_per_s * means.oldest_s
    latest_s = now_s + means.oldest_s
    return [
        inf
        if node.credits_left <= 0
        else node.wait_s + uncached * (node.token_s + busy_s)
        if (uncached := prompt_tokens - known) <= node.empty_tokens
        else node.wait_s
        + uncached * (node.token_s + busy_s + evict_s / (latest_s - node.oldest_at_s))
        if node.empty_tokens <= 0 and uncached <= node.room_tokens
        else cost_s(node, uncached, means, now_s=now_s)
        for node, known in zip(nodes, cached, strict=True)
    ]


def _evict_s(node: Account, uncached: int, means: FleetMeans, now_s: float) -> float:
    """Tokens that must be evicted, weighed by how young they are among the fleet's."""
    evicted = min(max(0.0, uncached - node.empty_tokens), uncached)
    age_s = now_s - node.oldest_at_s
    share = means.oldest_s / (age_s + means.oldest_s)
    return EVICT_WEIGHT * evicted * share / means.prefill_tokens_per_s
