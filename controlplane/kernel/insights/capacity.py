"""The capacity worksheet: what a pool carries, how full it is at a rate, and what gives way first.

By Little's law the requests in progress are their rate times how long each takes. Pure arithmetic.
"""

from collections.abc import Sequence
from math import ceil, inf
from typing import NamedTuple

import msgspec

US_PER_S = 1_000_000
S_PER_MIN = 60
HOURS_PER_DAY = 24
GROWTH_DAYS = 28
# Fewer times, or batches more alike, say nothing of what a larger one costs.
SLOWED_POINTS_MIN, SLOWED_SPREAD_MIN = 6, 0.1
COMPUTE, SLOTS, CACHE = "compute", "slots", "kv_cache"
RESOURCES = {
    COMPUTE: "nodes, at this batching factor",
    SLOTS: "requests that nodes accept concurrently",
    CACHE: "tokens in the KV cache",
}


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What comes: requests a second at the peak, tokens of each, the part of the prompt cached.

    `rise_per_min` is by how many requests a second it grows in its steepest minute.
    """

    per_s: float
    tokens_in: float
    tokens_out: float
    cached_share: float
    rise_per_min: float = 0.0


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What one node does: microseconds a token, requests in a step, and its bounds.

    `prefill_us` is of an uncached token of the prompt, `decode_us` of a token in a stream, both at
    the batching factor `batch`; each further sequence in a step adds `slower_us` to each token.
    A start takes `cold_start_s`. Any but the first three are 0 where they are not known.
    """

    prefill_us: float
    decode_us: float
    batch: float
    slots: int
    kv_tokens: int
    slower_us: float = 0.0
    cold_start_s: float = 0.0

    def token_us(self, batch: float) -> float:
        """Time between a stream's tokens in steps of so many sequences."""
        slowed = self.decode_us + self.slower_us * (max(1.0, batch) - self.batch)
        return max(slowed, self.slower_us)

    def at(self, batch: float) -> "Engine":
        """The same engine with steps of another size."""
        return msgspec.structs.replace(self, batch=batch, decode_us=self.token_us(batch))


class Use(msgspec.Struct, frozen=True):
    """How full one resource is: 1.0 is full. `headroom` is how many times the load would fit, and
    it breaks at `per_s_max` requests a second."""

    resource: str
    used: float
    per_s_max: float

    @property
    def headroom(self) -> float:
        """Times the load; infinite where nothing is used."""
        return 1 / self.used if self.used else inf


class CapacitySheet(msgspec.Struct, frozen=True, kw_only=True):
    """The worksheet of one pool. `uses` has the fullest resource first: it breaks first.

    `seconds` is how long one request takes on a node, `at_once` how many are in progress. Of
    `nodes_needed`, `nodes_spare` are for what comes while another one starts.
    """

    seconds: float
    at_once: float
    uses: tuple[Use, ...]
    nodes_needed: int
    nodes_spare: int
    gpu_hours_day: float
    per_s_max: float


def make_sheet(load: Load, engine: Engine, *, nodes: int, cards_per_node: int) -> CapacitySheet:
    """Fill it in; without nodes everything is full."""
    seconds = (
        load.tokens_in * (1 - load.cached_share) * engine.prefill_us
        + load.tokens_out * engine.decode_us
    ) / US_PER_S
    # Nodes that one request a second keeps busy, by resource: the scarcest asks for most.
    shares = {COMPUTE: seconds / engine.batch}
    if engine.slots:
        shares[SLOTS] = seconds / engine.slots
    if engine.kv_tokens:
        shares[CACHE] = seconds * (load.tokens_in + load.tokens_out) / engine.kv_tokens
    scarcest = max(shares.values())
    uses = [
        Use(name, load.per_s * share / nodes if nodes else inf, nodes / share if share else inf)
        for name, share in shares.items()
    ]
    uses.sort(key=lambda use: -use.used)
    rise = load.rise_per_min * engine.cold_start_s / S_PER_MIN
    needed = ceil((load.per_s + rise) * scarcest)
    return CapacitySheet(
        seconds=seconds,
        at_once=load.per_s * seconds,
        uses=tuple(uses),
        nodes_needed=needed,
        nodes_spare=needed - ceil(load.per_s * scarcest),
        gpu_hours_day=float(needed * cards_per_node * HOURS_PER_DAY),
        per_s_max=nodes / scarcest if scarcest else inf,
    )


def rate_ahead(per_s: float, growth: float, days: float) -> float:
    """A rate in so many days, where it grows by that factor in 28."""
    return float(per_s * growth ** (days / GROWTH_DAYS))


class Slowed(NamedTuple):
    """Over some time: sequences in a step, microseconds of each token, and tokens."""

    batch: float
    token_us: float
    tokens: float


def slower_by_sequence(times: Sequence[Slowed]) -> float:
    """What each further sequence of a step adds to each token, by least squares weighted by tokens.

    Never less than 0, nor so much that a stream alone would take no time; 0 where the times say
    too little.
    """
    tokens = sum(one.tokens for one in times)
    if len(times) < SLOWED_POINTS_MIN or not tokens:
        return 0.0
    batch = sum(one.batch * one.tokens for one in times) / tokens
    token_us = sum(one.token_us * one.tokens for one in times) / tokens
    spread = sum(one.tokens * (one.batch - batch) ** 2 for one in times) / tokens
    if spread < (SLOWED_SPREAD_MIN * batch) ** 2:
        return 0.0
    both = sum(one.tokens * (one.batch - batch) * (one.token_us - token_us) for one in times)
    return min(max(0.0, both / tokens / spread), token_us / batch)
