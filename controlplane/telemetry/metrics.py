"""Whether roll-ups keep up, for Prometheus: what is not rolled up is lost with its minutes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane.telemetry.rollups import rollups_behind


class TelemetryCollector(Collector):
    """Reads the database at each scrape."""

    def collect(self) -> Iterator[Metric]:
        """All families."""
        behind = rollups_behind()
        for name, text, value in (
            (
                "sluice_rollups_behind_seconds",
                "How long the oldest window has been over without its roll-up",
                behind.seconds,
            ),
            ("sluice_rollup_windows_waiting", "Windows to be rolled up again", behind.waiting),
            (
                "sluice_rollup_windows_lost",
                "Windows of the last two weeks that lack something for good",
                behind.lost,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)
