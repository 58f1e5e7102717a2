"""Objectives of the installation and owners of stages, for Prometheus; tenants keep theirs."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from controlplane.core.audit import OPERATOR
from controlplane.slos.models import EVERYONE, StageOwner
from controlplane.slos.selectors import objective_standings, stage_owners
from controlplane.slos.standings import SHOWN_MIN, Standing

OBJECTIVES_MAX = 100
US_PER_S = 1_000_000
SEVERITIES = ("page", "ticket", "absent")


class SloCollector(Collector):
    """Reads the database at each scrape."""

    def collect(self) -> Iterator[Metric]:
        """All families."""
        found = objective_standings(actor=OPERATOR, organization=EVERYONE)[:OBJECTIVES_MAX]
        yield from _standings(found)
        yield _firing(found)
        yield from _owners(list(stage_owners().values()))


def _standings(found: list[Standing]) -> Iterator[Metric]:
    target = GaugeMetricFamily(
        "sluice_objective_target_ratio", "Promised share of good requests", labels=["objective"]
    )
    left = GaugeMetricFamily(
        "sluice_objective_budget_left_ratio",
        "Share of the error budget that is left; below 0 where it is overspent",
        labels=["objective"],
    )
    burn = GaugeMetricFamily(
        "sluice_objective_burn_rate",
        "How fast the error budget burns: at 1 it lasts exactly as long as its period",
        labels=["objective", "minutes"],
    )
    for standing in found:
        name = standing.objective.name
        target.add_metric([name], standing.target)
        if standing.left is not None:
            left.add_metric([name], standing.left)
        for minutes in SHOWN_MIN:
            rate = standing.burn(minutes)
            if rate is not None:
                burn.add_metric([name, str(minutes)], rate)
    yield from (target, left, burn)


def _firing(found: list[Standing]) -> Metric:
    family = GaugeMetricFamily(
        "sluice_objective_alerts_firing", "Objectives with such an alert", labels=["severity"]
    )
    for severity in SEVERITIES:
        firing = [alert for each in found for alert in each.alerts if alert.severity == severity]
        family.add_metric([severity], len(firing))
    return family


def _owners(owners: list[StageOwner]) -> Iterator[Metric]:
    info = InfoMetricFamily(
        "sluice_stage_owner", "Who answers for a stage, and by which runbook", labels=["stage"]
    )
    budget = GaugeMetricFamily(
        "sluice_stage_budget_seconds", "What a stage may take at p95", labels=["stage"]
    )
    for owner in owners:
        info.add_metric([owner.stage], {"team": owner.team, "runbook": owner.runbook})
        budget.add_metric([owner.stage], owner.budget_us / US_PER_S)
    yield from (info, budget)
