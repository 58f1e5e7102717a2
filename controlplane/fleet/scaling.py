"""How many nodes a pool should have: what its load asks for, and a memory that calms it down.

Pure: figures in, a number out. More nodes are wanted at once; fewer only after the load has been
lower for a while, and then no fewer than its highest point in that time asked for, since a node
that is stopped costs a cold start and its cache.
"""

from dataclasses import dataclass
from math import ceil

# Of the jobs that nodes take at once; the rest is room for what arrives while a node starts.
BUSY_SHARE = 0.75
KV_SHARE = 0.9
SETTLE_S = 300.0
# Before any node has said how many jobs it takes.
JOBS_PER_NODE_UNKNOWN = 8


@dataclass(frozen=True, kw_only=True)
class PoolLoad:
    """A pool now. `credits` are the jobs that all its ready nodes take at once, `in_flight` those
    that they have, `waiting` those that wait in gateways; `kv_share` is the used part of their KV
    cache, 0 to 1, without blocks that could be evicted; `unmet` where a request has just found no
    node of it.
    """

    nodes_ready: int = 0
    credits: int = 0
    in_flight: int = 0
    waiting: int = 0
    kv_share: float = 0.0
    unmet: bool = False

    @property
    def busy_share(self) -> float:
        """Utilization: jobs of those that the nodes could take, 0 to 1; a queue is not in it."""
        return self.in_flight / self.credits if self.credits else 0.0


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The signal and its memory: since when less was wanted (seconds), and the most since then."""

    desired: int
    low_since_s: float | None = None
    low_peak: int = 0


def nodes_wanted(load: PoolLoad, *, nodes_min: int, nodes_max: int) -> int:
    """What the load of this moment asks for, within the pool's bounds."""
    per_node = load.credits / load.nodes_ready if load.nodes_ready else JOBS_PER_NODE_UNKNOWN
    by_jobs = ceil((load.in_flight + load.waiting) / max(1.0, per_node * BUSY_SHARE))
    by_cache = ceil(load.nodes_ready * load.kv_share / KV_SHARE) if load.in_flight else 0
    return max(nodes_min, min(nodes_max, max(by_jobs, by_cache, int(load.unmet))))


def scale_next(
    before: Scale | None, wanted: int, now_s: float, settle_s: float = SETTLE_S
) -> Scale:
    """The signal after this moment; `now_s` is any clock that only goes forward."""
    if before is None or wanted >= before.desired:
        return Scale(desired=wanted)
    if before.low_since_s is None:
        return Scale(desired=before.desired, low_since_s=now_s, low_peak=wanted)
    peak = max(before.low_peak, wanted)
    if now_s - before.low_since_s < settle_s:
        return Scale(desired=before.desired, low_since_s=before.low_since_s, low_peak=peak)
    return Scale(desired=peak)
