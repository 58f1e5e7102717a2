"""The node with the lowest expected cost: seconds until it could answer, and what we add to it.

`(Q + U) / P + 0.1 (A + 1) s`: queued and uncached prompt tokens over the learned prefill rate, and
active sequences times the learned step time. At full weight the second term would spread requests
so widely that prefix caches are no longer reused. Ties are broken at random: list order makes
hot spots.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from controlplane.gateway.call import Call
from controlplane.gateway.nodes.link import NodeLink
from controlplane.kernel.spans import INDEX

NODE = INDEX["s4_route.node"]
ACTIVE_WEIGHT = 0.1
PREFILL_TOKENS_PER_S_UNKNOWN = 10_000.0
STEP_S_UNKNOWN = 0.01
RECEIPT_CANDIDATES_MAX = 8


class Candidate(msgspec.Struct, frozen=True):
    """One row of the route receipt; cost in milliseconds."""

    node: str
    cached_tokens: int
    queued_tokens: int
    active: int
    cost_ms: float


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where the request goes, and why."""

    link: NodeLink
    cached_tokens: int
    rule: str
    candidates: tuple[Candidate, ...]

    def receipt(self) -> dict[str, object]:
        """What is kept with the request."""
        return {
            "rule": self.rule,
            "node": self.link.identity.name,
            "predicted_cached_tokens": self.cached_tokens,
            "candidates": [msgspec.structs.asdict(each) for each in self.candidates],
        }


def pick_node(
    call: Call,
    nodes: Sequence[NodeLink],
    cached: dict[str, int],
    *,
    prompt_tokens: int,
    rule: str,
) -> Placement:
    """The cheapest of `nodes`, which must not be empty."""
    began = call.spans.clock()
    rows = [_candidate(link, cached[link.identity.name], prompt_tokens) for link in nodes]
    lowest = min(row.cost_ms for row in rows)
    place = random.choice([place for place, row in enumerate(rows) if row.cost_ms == lowest])
    rows_kept = sorted(rows, key=lambda row: row.cost_ms)[:RECEIPT_CANDIDATES_MAX]
    made = Placement(
        link=nodes[place],
        cached_tokens=rows[place].cached_tokens,
        rule=rule,
        candidates=tuple(rows_kept),
    )
    call.spans.add(NODE, began)
    return made


def _candidate(link: NodeLink, cached: int, prompt_tokens: int) -> Candidate:
    account = link.account
    rate = account.prefill_tokens_per_s.value or PREFILL_TOKENS_PER_S_UNKNOWN
    step_s = account.step_s.value or STEP_S_UNKNOWN
    waiting_s = (account.queued_tokens + prompt_tokens - cached) / rate
    cost_s = waiting_s + ACTIVE_WEIGHT * (account.active + 1) * step_s
    return Candidate(
        link.identity.name, cached, account.queued_tokens, account.active, round(cost_s * 1000, 3)
    )
