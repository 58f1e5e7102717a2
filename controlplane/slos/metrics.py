"""Objectives of the installation and owners of stages, for Prometheus; tenants keep theirs."""

from collections import Counter

from controlplane.core.audit.entries import OPERATOR
from controlplane.slos.models import EVERYONE, StageOwner
from controlplane.slos.selectors import objective_standings, stage_owners
from controlplane.slos.standings import SHOWN_MIN, ObjectiveStatus
from controlplane.telemetry.exposition import Exposition

OBJECTIVES_MAX = 100
US_PER_S = 1_000_000
SEVERITIES = ("page", "ticket", "absent")


def write_slos(page: Exposition) -> None:
    found = objective_standings(actor=OPERATOR, organization=EVERYONE)[:OBJECTIVES_MAX]
    _write_standings(page, found)
    _write_firing(page, found)
    _write_owners(page, list(stage_owners().values()))


def _write_standings(page: Exposition, found: list[ObjectiveStatus]) -> None:
    family = page.family(
        "sluice_objective_target_ratio", "gauge", "Promised share of good requests"
    )
    family.add_all("objective", [(each.objective.name, each.target) for each in found])
    family = page.family(
        "sluice_objective_budget_left_ratio",
        "gauge",
        "Share of the error budget that is left; below 0 where it is overspent",
    )
    left = [(each.objective.name, each.left) for each in found]
    family.add_all("objective", [(name, share) for name, share in left if share is not None])
    family = page.family(
        "sluice_objective_burn_rate",
        "gauge",
        "How fast the error budget burns: at 1 it lasts exactly as long as its period",
    )
    for each in found:
        for minutes in SHOWN_MIN:
            rate = each.burn(minutes)
            if rate is not None:
                family.add({"objective": each.objective.name, "minutes": str(minutes)}, rate)


def _write_firing(page: Exposition, found: list[ObjectiveStatus]) -> None:
    firing = Counter(alert.severity for each in found for alert in each.alerts)
    family = page.family("sluice_objective_alerts_firing", "gauge", "Objectives with such an alert")
    family.add_all("severity", [(severity, firing[severity]) for severity in SEVERITIES])


def _write_owners(page: Exposition, owners: list[StageOwner]) -> None:
    family = page.family(
        "sluice_stage_owner_info", "gauge", "Who answers for a stage, and by which runbook"
    )
    for owner in owners:
        family.add({"stage": owner.stage, "team": owner.team, "runbook": owner.runbook}, 1)
    family = page.family("sluice_stage_budget_seconds", "gauge", "What a stage may take at p95")
    family.add_all("stage", [(owner.stage, owner.budget_us / US_PER_S) for owner in owners])
