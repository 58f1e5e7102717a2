"""Whether roll-ups keep up, for Prometheus: what is not rolled up is lost with its minutes."""

from controlplane.telemetry.exposition import Exposition
from controlplane.telemetry.rollups import rollups_behind


def write_telemetry(page: Exposition) -> None:
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
        page.one(name, "gauge", text, value)
