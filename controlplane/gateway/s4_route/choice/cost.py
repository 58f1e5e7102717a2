"""What a request would cost on each node, in seconds; the cheapest takes it. No clock, no I/O.

`(Q + U) / P + 0.1 (A + 1) s + (k U + 6 E) / P_mean`, and what overflows its cache once more.
Q tokens wait on the node, U of this prompt are not cached there, P and s are its learned speeds,
A its active jobs. An uncached token also delays those who come behind (k, see `FleetMeans`), and
evicted tokens (E) have to be computed again by somebody: the sooner, the younger what is evicted.
These two are divided by the fleet's rate, or everything would be drawn to the fastest nodes.
"""

from collections.abc import Sequence
from math import inf

import msgspec
import numpy as np

from controlplane.gateway.nodes.measured.account import NodeAccount, Ready
from controlplane.gateway.nodes.measured.loads import Floats, ManyLoads, Places, ReadyColumns
from controlplane.gateway.nodes.measured.means import FleetMeans

# Simulated: at 2 conversations flee from nodes that compute long prompts and lose 2 % of their
# hits; 4 to 8 keep them at the same p95.
EVICT_WEIGHT = 6.0
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


class NodeChoice(msgspec.Struct, frozen=True):
    """The place of the chosen node, and the cost of every node in seconds, an array of many.

    A node without a credit costs infinitely much.
    """

    place: int
    costs: list[float] | Floats


def choose(
    nodes: Sequence[NodeAccount] | ManyLoads,
    cached: Sequence[int] | Places,
    prompt_tokens: int,
    means: FleetMeans,
    *,
    now_s: float,
    draw: float,
) -> NodeChoice:
    """The cheapest of `nodes`, of which one must have a credit.

    All within `TIE_SHARE` of the least cost tie: `draw`, uniform in [0, 1), picks one of them in
    their order, so that each is as likely, and nothing else is random.

    `cached` are the tokens of this prompt that each node has, below `prompt_tokens`; `means` have
    observed all nodes of the model, also those that are full and not among `nodes`. Of many nodes,
    with an array of `cached`, it is the same choice to the last bit.
    """
    if isinstance(nodes, ManyLoads):
        uncached = np.subtract(prompt_tokens, cached, dtype=float)
        return _choose_of_many(_costs_of_many(nodes.ready(), uncached, means, now_s=now_s), draw)
    costs = _costs(nodes, cached, prompt_tokens, means, now_s=now_s)
    bound = _tie_bound(min(costs))
    ties = [place for place, cost in enumerate(costs) if cost <= bound]
    return NodeChoice(ties[int(draw * len(ties))], costs)


def _choose_of_many(costs: Floats, draw: float) -> NodeChoice:
    ties = np.flatnonzero(costs <= _tie_bound(float(costs.min())))
    return NodeChoice(int(ties[int(draw * len(ties))]), costs)


def _tie_bound(least: float) -> float:
    """What costs no more is as good as the cheapest."""
    if least == inf:
        raise ValueError("nodes: none has a credit left")
    return least * (1.0 + TIE_SHARE)


def explain(node: NodeAccount, uncached: int, means: FleetMeans, *, now_s: float) -> CostParts:
    """The same sum for one node, part by part."""
    ready = node.ready
    queue_s = node.queued_tokens * ready.token_s
    evict_s, overflow_s = _cache_s(ready, uncached, means, now_s)
    return CostParts(
        wait_s=queue_s,
        prefill_s=uncached * ready.token_s,
        active_s=ready.wait_s - queue_s,
        busy_s=uncached * means.copy_weight / means.prefill_tokens_per_s,
        evict_s=evict_s,
        overflow_s=overflow_s,
    )


def _costs(
    nodes: Sequence[NodeAccount],
    cached: Sequence[int] | Places,
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
    ready = [node.ready for node in nodes]
    return [
        wait_s + uncached * (token_s + busy_s)
        if (uncached := prompt_tokens - known) <= empty_tokens
        else wait_s + uncached * (token_s + busy_s + evict_s / (latest_s - oldest_at_s))
        if empty_tokens <= 0 and uncached <= room_tokens
        else _tight_s(each, uncached, means, now_s=now_s)
        for (each, known) in zip(ready, cached, strict=True)
        for (wait_s, token_s, empty_tokens, room_tokens, oldest_at_s) in (each,)
    ]


def _costs_of_many(
    loads: ReadyColumns, uncached: Floats, means: FleetMeans, *, now_s: float
) -> Floats:
    """The same sums in the same order, each step for all nodes together."""
    rate = means.prefill_tokens_per_s
    token_s = loads.token_s + means.copy_weight / rate
    evicts = uncached > loads.empty_tokens
    if not evicts.any():
        return loads.wait_s + uncached * token_s
    age_s = now_s + means.oldest_s - loads.oldest_at_s
    full = evicts & (loads.empty_tokens <= 0) & (uncached <= loads.room_tokens)
    evict_s = EVICT_WEIGHT / rate * means.oldest_s / age_s
    costs: Floats = loads.wait_s + uncached * np.where(full, token_s + evict_s, token_s)
    if (tight := np.flatnonzero(evicts ^ full)).size:
        some = ReadyColumns(*[column[tight] for column in loads])
        costs[tight] = _tight_of_many(some, uncached[tight], means, now_s=now_s)
    return costs


def _tight_of_many(
    loads: ReadyColumns, uncached: Floats, means: FleetMeans, *, now_s: float
) -> Floats:
    rate = means.prefill_tokens_per_s
    evicted = np.minimum(np.maximum(0.0, uncached - loads.empty_tokens), uncached)
    share = means.oldest_s / (now_s - loads.oldest_at_s + means.oldest_s)
    evict_s = EVICT_WEIGHT * evicted * share / rate
    overflow_s = np.maximum(0.0, uncached - loads.room_tokens) * loads.token_s
    work_s = loads.wait_s + uncached * (loads.token_s + means.copy_weight / rate)
    costs: Floats = work_s + evict_s + overflow_s
    return costs


def _tight_s(ready: Ready, uncached: int, means: FleetMeans, *, now_s: float) -> float:
    """The cost where only some of the tokens evict, or not all of them fit."""
    per_token_s = ready.token_s + means.copy_weight / means.prefill_tokens_per_s
    evict_s, overflow_s = _cache_s(ready, uncached, means, now_s)
    return ready.wait_s + uncached * per_token_s + evict_s + overflow_s


def _cache_s(ready: Ready, uncached: int, means: FleetMeans, now_s: float) -> tuple[float, float]:
    """What evicted tokens cost, weighed by how young they are among the fleet's; and overflow."""
    evicted = min(max(0.0, uncached - ready.empty_tokens), uncached)
    age_s = now_s - ready.oldest_at_s
    share = means.oldest_s / (age_s + means.oldest_s)
    overflow = max(0.0, uncached - ready.room_tokens)
    return (EVICT_WEIGHT * evicted * share / means.prefill_tokens_per_s, overflow * ready.token_s)
