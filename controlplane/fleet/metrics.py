"""Pools for Prometheus. Queue depth and utilization are figures apart."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from django.utils import timezone
from prometheus_client.core import GaugeHistogramMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane.core.audit import OPERATOR
from controlplane.fleet.overview import waiting_by_model
from controlplane.fleet.selectors import cold_starts
from controlplane.fleet.signals import Signal, signals

COLD_START_BOUNDS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0)
MS_PER_S = 1_000
POOL = ["pool"]


class FleetCollector(Collector):
    """Reads the database at each scrape; nothing is counted in this process."""

    def collect(self) -> Iterator[Metric]:
        """All families."""
        now = timezone.now()
        found = signals(actor=OPERATOR, now=now)
        queue = GaugeMetricFamily(
            "sluice_queue_depth", "Requests that wait in gateways", labels=["model"]
        )
        for model, waiting in sorted(waiting_by_model(now).items()):
            if model:
                queue.add_metric([model], waiting)
        yield queue
        for name, text, values in _gauges(found):
            family = GaugeMetricFamily(name, text, labels=POOL)
            for signal, value in zip(found, values, strict=True):
                family.add_metric([signal.pool.name], value)
            yield family
        starts = GaugeHistogramMetricFamily(
            "sluice_pool_cold_start_seconds",
            "Seconds from a node's start until it could serve, of its pool's newest starts",
            labels=POOL,
        )
        for signal in found:
            seconds = [ms / MS_PER_S for ms in cold_starts(pool=signal.pool.name)]
            starts.add_metric([signal.pool.name], _buckets(seconds), sum(seconds))
        yield starts


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
        "Requests in flight of those that ready nodes take at once",
        [load.busy_share for load in loads],
    )
    yield (
        "sluice_pool_kv_used_ratio",
        "Used part of the KV cache, mean over ready nodes",
        [load.kv_share for load in loads],
    )


def _buckets(seconds: Sequence[float]) -> list[tuple[str, float]]:
    counts = [0] * (len(COLD_START_BOUNDS_S) + 1)
    for value in seconds:
        counts[bisect_left(COLD_START_BOUNDS_S, value)] += 1
    bounds = [*(str(bound) for bound in COLD_START_BOUNDS_S), "+Inf"]
    return [(bound, sum(counts[: place + 1])) for place, bound in enumerate(bounds)]
