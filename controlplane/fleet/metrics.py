"""Pools for Prometheus. Queue depth and utilization are figures apart."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from django.utils import timezone

from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.overview import waiting_by_model
from controlplane.fleet.selectors import cold_starts
from controlplane.fleet.signals import Signal, signals
from controlplane.telemetry.exposition import Exposition

COLD_START_BOUNDS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0)
MS_PER_S = 1_000
_BOUNDS = [str(bound) for bound in COLD_START_BOUNDS_S]


def write_fleet(page: Exposition) -> None:
    """Read pools and queues from the database; nothing is counted in this process."""
    now = timezone.now()
    found = signals(actor=OPERATOR, now=now)
    pools = [signal.pool.name for signal in found]
    queues = [(model, waiting) for model, waiting in waiting_by_model(now).items() if model]
    family = page.family("sluice_queue_depth", "gauge", "Requests that wait in gateways")
    family.add_all("model", sorted(queues))
    for name, text, values in _gauges(found):
        page.family(name, "gauge", text).add_all("pool", zip(pools, values, strict=True))
    _write_cold_starts(page, pools)


def _gauges(found: Sequence[Signal]) -> Iterator[tuple[str, str, list[float]]]:
    loads = [signal.load for signal in found]
    yield (
        "sluice_pool_nodes_desired",
        "Nodes that the pool should have, within its bounds",
        [signal.desired for signal in found],
    )
    yield "sluice_pool_nodes_ready", "Nodes that take jobs", [load.nodes_ready for load in loads]
    yield (
        "sluice_pool_nodes_min",
        "Nodes that are kept warm at this time",
        [signal.nodes_min for signal in found],
    )
    yield (
        "sluice_pool_queue_depth",
        "Requests that wait in gateways for the pool's nodes",
        [load.waiting for load in loads],
    )
    yield (
        "sluice_pool_jobs_in_flight",
        "Requests that the pool's nodes have",
        [load.in_flight for load in loads],
    )
    yield (
        "sluice_pool_utilization_ratio",
        "Share of the capacity of ready nodes that requests in flight use",
        [load.busy_share for load in loads],
    )
    yield (
        "sluice_pool_kv_used_ratio",
        "Used part of the KV cache, mean over ready nodes",
        [load.kv_share for load in loads],
    )


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
