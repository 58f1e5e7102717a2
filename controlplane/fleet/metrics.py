"""Pools for Prometheus. Queue depth and utilization are figures apart."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from django.utils import timezone

from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.overview import Signal, signals, waiting_by_model
from controlplane.fleet.selectors import cold_starts
from controlplane.telemetry.exposition import Exposition

COLD_START_BOUNDS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0)
MS_PER_S = 1_000
GAUGES: tuple[tuple[str, str, Callable[[Signal], float]], ...] = (
    ("nodes_desired", "Nodes that the pool should have, within its bounds", lambda s: s.desired),
    ("nodes_ready", "Nodes that take jobs", lambda s: s.load.nodes_ready),
    ("nodes_min", "Nodes that are kept warm at this time", lambda s: s.nodes_min),
    ("queue_depth", "Requests that wait in gateways for the pool's nodes",
     lambda s: s.load.waiting),
    ("jobs_in_flight", "Requests that the pool's nodes have", lambda s: s.load.in_flight),
    ("utilization_ratio", "Share of the capacity of ready nodes that requests in flight use",
     lambda s: s.load.busy_share),
    ("kv_used_ratio", "Used part of the KV cache, mean over ready nodes",
     lambda s: s.load.kv_share),
)  # fmt: skip
_BOUNDS = [str(bound) for bound in COLD_START_BOUNDS_S]


def write_fleet(page: Exposition) -> None:
    now = timezone.now()
    found = signals(actor=OPERATOR, now=now)
    pools = [signal.pool.name for signal in found]
    queues = [(model, waiting) for model, waiting in waiting_by_model(now).items() if model]
    family = page.family("sluice_queue_depth", "gauge", "Requests that wait in gateways")
    family.add_all("model", sorted(queues))
    for name, text, value in GAUGES:
        values = zip(pools, map(value, found), strict=True)
        page.family(f"sluice_pool_{name}", "gauge", text).add_all("pool", values)
    _write_cold_starts(page, pools)


def _write_cold_starts(page: Exposition, pools: Sequence[str]) -> None:
    name = "sluice_pool_cold_start_seconds"
    text = "Seconds from a node's start until it could serve, of its pool's newest starts"
    starts = {pool: [ms / MS_PER_S for ms in cold_starts(pool=pool)] for pool in pools}
    family = page.family(name, "histogram", text)
    for pool, seconds in starts.items():
        counts = [0] * (len(COLD_START_BOUNDS_S) + 1)
        for value in seconds:
            counts[bisect_left(COLD_START_BOUNDS_S, value)] += 1
        family.add_buckets({"pool": pool}, _BOUNDS, counts)
    # Old starts drop out, so count and sum are gauges.
    for suffix, total in (("gcount", len), ("gsum", sum)):
        family = page.family(f"{name}_{suffix}", "gauge", text)
        family.add_all("pool", [(pool, total(seconds)) for pool, seconds in starts.items()])
