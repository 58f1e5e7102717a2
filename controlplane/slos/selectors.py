"""Reads of objectives: how they stand, when their budget went, who was told, who owns a stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db.models import Sum
from django.db.models.functions import TruncMonth
from django.utils import timezone

from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.kernel.objectives.burn import Count, remaining
from controlplane.kernel.spans import STAGES
from controlplane.slos import models
from controlplane.slos.marks import MARKS_MAX, Mark, marks_between
from controlplane.slos.runbooks import runbook_of
from controlplane.slos.services import OBJECTIVES_MAX, changing, seeing
from controlplane.slos.standings import STEP_DAY, STEP_HOUR, ObjectiveStatus, floor, standings
from controlplane.tenants.access import allows

ALERTS_SHOWN_MAX = 50
# An objective has one of each of three severities at most.
ALERTS_FIRING_MAX = 3 * OBJECTIVES_MAX
DELIVERIES_SHOWN_MAX = 50
# As many as days are kept of, each whole.
MONTHS_SHOWN = 13


class Spent(NamedTuple):
    """The share of the period's budget that is left after an hour, and what it counted."""

    at: datetime
    left: float
    counted: Count


class ObjectiveMonth(NamedTuple):
    """A calendar month in UTC, and what counted in it, whatever the version."""

    begins: datetime
    counted: Count


@dataclass(frozen=True)
class BurnDown:
    """The budget over one period, from whole to what is left, with what happened in the meantime.

    It was whole at `opens`, where the period begins, or counting did within it. `months` are the
    last year's and a bit, newest first.
    """

    standing: ObjectiveStatus
    opens: datetime
    hours: list[Spent]
    marks: list[Mark]
    alerts: list[models.Alert]
    months: list[ObjectiveMonth]


def objective_standings(*, actor: Actor, organization: UUID) -> list[ObjectiveStatus]:
    """How each objective of an organization, or of the installation, stands now."""
    with seeing(actor, organization):
        return standings([organization], timezone.now())


def objectives_living(*, actor: Actor, organization: UUID) -> list[models.Objective]:
    """What an organization, or the installation, promises, by name."""
    with seeing(actor, organization):
        rows = models.Objective.objects.filter(organization=organization, ended_at=None)
        return list(rows.order_by("name"))


def objective_get(*, actor: Actor, organization: UUID, objective_id: UUID) -> models.Objective:
    """A living objective; raises DoesNotExist."""
    with seeing(actor, organization):
        return models.Objective.objects.get(
            id=objective_id, organization=organization, ended_at=None
        )


def objective_standing(*, actor: Actor, organization: UUID, objective_id: UUID) -> ObjectiveStatus:
    """How one objective stands; raises DoesNotExist."""
    for standing in objective_standings(actor=actor, organization=organization):
        if standing.objective.id == objective_id:
            return standing
    raise models.Objective.DoesNotExist


def burn_down(*, actor: Actor, organization: UUID, objective_id: UUID) -> BurnDown:
    """When an objective's budget of this period went, hour by hour."""
    standing = objective_standing(actor=actor, organization=organization, objective_id=objective_id)
    objective = standing.objective
    opens = floor(timezone.now() - timedelta(days=objective.period_days), STEP_HOUR)
    with seeing(actor, organization):
        hours = _hours(standing, opens)
        changes = models.Change.objects.filter(objective=objective, created_at__gte=opens)
        own = sorted(Mark(change.created_at, change.text) for change in changes)[-MARKS_MAX:]
        alerts = models.Alert.objects.filter(objective=objective, created_at__gte=opens)
        alerts = alerts.select_related("objective")
        shown = list(alerts.order_by("-created_at")[:ALERTS_SHOWN_MAX])
        months = _months(objective)
    others = marks_between(actor=actor, organization=organization, start=opens, end=timezone.now())
    # Its own changes explain it best: others have the places that they leave.
    marks = sorted([*own, *others[max(0, len(others) + len(own) - MARKS_MAX) :]])
    opens = max(opens, _counted_from(objective, hours))
    return BurnDown(standing, opens, hours, marks, shown, months)


def alert_list(*, actor: Actor, organization: UUID) -> list[models.Alert]:
    """The newest alerts, newest first, with what was sent about each."""
    with seeing(actor, organization):
        rows = models.Alert.objects.filter(organization=organization).select_related("objective")
        found = rows.prefetch_related("deliveries").order_by("-created_at")[:ALERTS_SHOWN_MAX]
        return list(found)


def alerts_firing(*, actor: Actor, organization: UUID) -> list[models.Alert]:
    """Those that have not recovered, newest first, however long ago they began."""
    with seeing(actor, organization):
        rows = models.Alert.objects.filter(organization=organization, recovered_at=None)
        return list(rows.select_related("objective").order_by("-created_at")[:ALERTS_FIRING_MAX])


def alert_get(*, actor: Actor, organization: UUID, alert_id: UUID) -> models.Alert:
    """One alert; raises DoesNotExist."""
    with seeing(actor, organization):
        rows = models.Alert.objects.select_related("objective")
        return rows.get(id=alert_id, organization=organization)


def channel_list(*, actor: Actor, organization: UUID) -> list[models.Channel]:
    with seeing(actor, organization):
        return list(models.Channel.objects.filter(organization=organization).order_by("created_at"))


def delivery_list(*, actor: Actor, organization: UUID) -> list[models.Delivery]:
    """The newest messages, newest first, for who may change channels."""
    with changing(actor, organization):
        rows = models.Delivery.objects.filter(organization=organization)
        found = rows.select_related("alert__objective", "channel").order_by("-created_at", "-id")
        return list(found[:DELIVERIES_SHOWN_MAX])


def silences(*, actor: Actor, organization: UUID) -> dict[UUID, models.Silence]:
    """Those in force, by objective."""
    with seeing(actor, organization):
        rows = models.Silence.objects.filter(organization=organization, until__gt=timezone.now())
        return {one.objective_id: one for one in rows.order_by("until")}


def stage_owners() -> dict[str, models.StageOwner]:
    """Who answers for each of the seven stages; one that no one took has its public budget."""
    kept = {owner.stage: owner for owner in models.StageOwner.objects.all()}
    return {
        name: kept.get(name)
        or models.StageOwner(
            stage=name, team=models.NOBODY, budget_us=budget_us, runbook=runbook_of(name)
        )
        for name, _, budget_us in STAGES
    }


def stage_alerts(*, actor: Actor, organizations: Sequence[UUID]) -> dict[str, list[models.Alert]]:
    """Alerts that fire on objectives of a stage, as far as the caller may see them."""
    found: dict[str, list[models.Alert]] = {}
    for organization in organizations:
        if organization == models.EVERYONE and not allows(actor, Action.SLO_INSTALLATION):
            continue
        for standing in objective_standings(actor=actor, organization=organization):
            for alert in standing.alerts:
                found.setdefault(standing.objective.indicator, []).append(alert)
    return found


def _months(objective: models.Objective) -> list[ObjectiveMonth]:
    days = models.Counted.objects.filter(objective=objective.id, step_s=STEP_DAY)
    months = days.annotate(month=TruncMonth("at", tzinfo=UTC)).values("month")
    sums = months.annotate(good=Sum("good"), total=Sum("total")).order_by("-month")
    return [
        ObjectiveMonth(one["month"], Count(one["good"], one["total"]))
        for one in sums[:MONTHS_SHOWN]
    ]


def _counted_from(objective: models.Objective, hours: list[Spent]) -> datetime:
    """When counting of this version began: before it, nothing was lost in a straight line."""
    if not hours:
        return objective.created_at
    first = hours[0].at - timedelta(hours=1)
    return objective.created_at if first < objective.created_at < hours[0].at else first


def _hours(standing: ObjectiveStatus, opens: datetime) -> list[Spent]:
    """Cumulated against the whole period's requests, so that the last is what is left now."""
    objective = standing.objective
    rows = models.Counted.objects.filter(
        objective=objective.id, version=objective.version, step_s=STEP_HOUR, at__gte=opens
    )
    sums = rows.values("at").annotate(good=Sum("good"), total=Sum("total")).order_by("at")
    whole = max(1, standing.period.total)
    hours, bad = [], 0
    for row in sums:
        count = Count(row["good"], row["total"])
        bad += count.bad
        left = remaining(Count(whole - min(bad, whole), whole), objective.target_ppm)
        hours.append(Spent(row["at"] + timedelta(hours=1), left or 0.0, count))
    return hours
