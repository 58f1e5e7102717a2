"""The capacity worksheet: what a pool carries, how full it is at a rate, and what gives way first.

By Little's law the requests in progress are their rate times how long each takes. Pure arithmetic.
"""

from math import ceil, inf

import msgspec

US_PER_S = 1_000_000
HOURS_PER_DAY = 24
COMPUTE, SLOTS, CACHE = "compute", "slots", "kv_cache"
RESOURCES = {
    COMPUTE: "nodes, at this batching factor",
    SLOTS: "requests that nodes accept concurrently",
    CACHE: "tokens in the KV cache",
}


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What comes: requests a second at the peak, tokens of each, the part of the prompt cached."""

    per_s: float
    tokens_in: float
    tokens_out: float
    cached_share: float


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What one node does: microseconds a token, requests in a step, and its bounds.

    `prefill_us` is of an uncached token of the prompt, `decode_us` of a token in a stream, both at
    the batching factor `batch`. `slots` and `kv_tokens` are 0 where they are not known.
    """

    prefill_us: float
    decode_us: float
    batch: float
    slots: int
    kv_tokens: int


class Use(msgspec.Struct, frozen=True):
    """How full one resource is: 1.0 is full. `headroom` is how many times the load would fit."""

    resource: str
    used: float

    @property
    def headroom(self) -> float:
        """Times the load; infinite where nothing is used."""
        return 1 / self.used if self.used else inf


class CapacitySheet(msgspec.Struct, frozen=True, kw_only=True):
    """The worksheet of one pool. `uses` has the fullest resource first: it breaks first.

    `seconds` is how long one request takes on a node, `at_once` how many are in progress.
    """

    seconds: float
    at_once: float
    uses: tuple[Use, ...]
    nodes_needed: int
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
        Use(name, load.per_s * share / nodes if nodes else inf) for name, share in shares.items()
    ]
    uses.sort(key=lambda use: -use.used)
    needed = ceil(load.per_s * scarcest)
    return CapacitySheet(
        seconds=seconds,
        at_once=load.per_s * seconds,
        uses=tuple(uses),
        nodes_needed=needed,
        gpu_hours_day=float(needed * cards_per_node * HOURS_PER_DAY),
        per_s_max=nodes / scarcest if scarcest else inf,
    )
