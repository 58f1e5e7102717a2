"""The receipt's part on routing: which nodes were weighed, what each would cost, why this one."""

from collections.abc import Sequence
from math import inf

import msgspec
import numpy as np

from controlplane.gateway.nodes.measured.account import NodeAccount
from controlplane.gateway.s4_route.choice.cost import NodeChoice, explain
from controlplane.gateway.s4_route.choice.memory import Roster, RoutingMemory
from controlplane.gateway.s4_route.choice.sought import Overlap, Sought, predicted_tokens
from controlplane.kernel.receipt import BELIEVED, Receipt, WeighedNode

CANDIDATES_MAX = 8
MS_PER_S = 1000.0
US_PER_S = 1_000_000.0


def make_receipt(
    sought: Sought,
    overlap: Overlap,
    roster: Roster,
    choice: NodeChoice,
    *,
    memory: RoutingMemory,
    now_s: float,
) -> Receipt:
    """The part of a choice among the nodes of `roster`; the record adds the rest."""
    means = memory.means(sought.model)
    candidates = []
    for place in _cheapest(choice):
        account, cached = roster.accounts[place], int(overlap.cached[place])
        parts = explain(account, sought.tokens - cached, means, now_s=now_s)
        parts_ms = list(map(_ms, msgspec.structs.astuple(parts)))
        candidates.append(_candidate(roster.names[place], account, cached, parts_ms))
    name, believed = roster.names[choice.place], int(overlap.cached[choice.place])
    expected = predicted_tokens(sought, roster.accounts[choice.place])
    return Receipt(
        rule=sought.rule,
        node=name,
        why=_why(sought, overlap, candidates, name=name, weighed=_weighed(choice)),
        index=overlap.index,
        available_tokens=overlap.available,
        predicted_cached_tokens=max(believed, expected),
        candidates=tuple(candidates),
    )


def _weighed(choice: NodeChoice) -> int:
    """How many nodes had room."""
    costs = choice.costs
    if isinstance(costs, list):
        return len(costs) - costs.count(inf)
    full = int(np.count_nonzero(costs == inf)) if costs.max() == inf else 0
    return len(costs) - full


def _cheapest(choice: NodeChoice) -> list[int]:
    """Places of the cheapest nodes that have room, cheapest first, with the chosen one."""
    costs = choice.costs
    if len(costs) == 1:
        return [choice.place]
    if isinstance(costs, list):
        bound = sorted(costs)[:CANDIDATES_MAX][-1]
        near = [place for place, cost in enumerate(costs) if cost <= bound < inf or cost < bound]
    else:
        bound = np.partition(costs, CANDIDATES_MAX - 1)[CANDIDATES_MAX - 1]
        near = np.flatnonzero(costs < bound).tolist()
        if bound < inf:
            near += np.flatnonzero(costs == bound)[:CANDIDATES_MAX].tolist()
            if choice.place not in near and costs[choice.place] == bound:
                near.append(choice.place)
    near.sort(key=lambda place: (costs[place], place != choice.place))
    del near[CANDIDATES_MAX:]
    if choice.place not in near:
        near[CANDIDATES_MAX - 1 :] = [choice.place]
    return near


def _ms(seconds: float) -> float:
    """Milliseconds to three places; what is not negative, at a third of the cost of `round`."""
    return int(seconds * US_PER_S + 0.5) / MS_PER_S


def _candidate(name: str, account: NodeAccount, cached: int, parts_ms: list[float]) -> WeighedNode:
    wait, prefill, active, busy, evict, overflow = parts_ms
    return WeighedNode(
        node=name,
        cached_tokens=cached,
        queued_tokens=account.queued_tokens,
        active=account.active + account.told.others_active,
        cost_ms=round(sum(parts_ms), 3),
        wait_ms=wait,
        prefill_ms=prefill,
        active_ms=active,
        busy_ms=busy,
        evict_ms=evict,
        overflow_ms=overflow,
    )


def _why(
    sought: Sought, overlap: Overlap, candidates: Sequence[WeighedNode], *, name: str, weighed: int
) -> str:
    if weighed == 1:
        return f"{name} was the only node with room."
    if overlap.index == "ring" or (sought.key and not overlap.most):
        known = "cache is known" if overlap.index == "ring" else "cache has this prompt"
        chose = "prompt_cache_key" if sought.key else "beginning of the prompt"
        return (
            f"No node's {known}, so the {chose} chose the node, "
            f"and {name} had no more than its share of the load."
        )
    chosen = next(each for each in candidates if each.node == name)
    most = max(candidates, key=lambda each: each.cached_tokens)
    had = f"{name} had {chosen.cached_tokens:,} of {sought.tokens:,} prompt tokens cached"
    had += BELIEVED.get(overlap.index, "")
    if most.cached_tokens == 0:
        had = f"No node had this prompt cached, and {name} had the lowest expected cost"
    elif chosen.cached_tokens == most.cached_tokens:
        had += " and the lowest expected cost"
    else:
        had += (
            f"; {most.node} had {most.cached_tokens:,}, but with {most.queued_tokens:,} tokens "
            f"waiting and {most.active} requests there it would have cost {most.cost_ms:,.0f} ms"
        )
    return f"{had}: {chosen.cost_ms:,.0f} ms, the least of {weighed} nodes."
