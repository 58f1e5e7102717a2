"""The plan of each pool: objectives of the installation, what its nodes did, what will come.

A job keeps the plans every five minutes; the autoscaling signal and agents follow those of pools
that say so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.db import DatabaseError
from django.utils import timezone

from controlplane.catalog.warm import nodes_min_at, windows_from
from controlplane.core.audit.entries import OPERATOR, Actor
from controlplane.core.permissions import organization_scope
from controlplane.fleet.models import PoolPlan
from controlplane.fleet.scaling import SETTLE_S
from controlplane.insights.capacity import MeasuredLoad, capacity_read, whole_hours
from controlplane.insights.sampled import PREFILL, rates, whole_query
from controlplane.kernel.histogram import Histogram
from controlplane.kernel.insights.planning import (
    STEP_S,
    NodeBound,
    NodePlan,
    Promise,
    forecast,
    make_plan,
    node_bounds,
)
from controlplane.kernel.measures import PHASES
from controlplane.kernel.objectives.burn import MILLION
from controlplane.kernel.objectives.counting import INTER_TOKEN, TTFT
from controlplane.slos.models import EVERYONE, Objective
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.selectors import series_whole

log = structlog.get_logger(__name__)
MEASURED_DAYS = 7
# A day less than steps of five minutes are kept, which the steps of a plan are made of.
HISTORY_DAYS = 12
# Of a start, and of what the job needs to see that it is time for one.
LEAD_STARTS = 1.5
SETTLE_STARTS = 2.0
PLAN_LIFE = timedelta(minutes=20)
NETWORK, OVERHEAD = PHASES["s5_infer.network"], "overhead"


@dataclass(frozen=True)
class PlannedPool:
    """A pool with its plan and what that was made of; `history` is requests a second by step."""

    measured: MeasuredLoad
    least: int
    promises: tuple[Promise, ...]
    bounds: tuple[NodeBound, ...]
    history: dict[int, float]
    plan: NodePlan

    @property
    def cold_start_s(self) -> float:
        return self.measured.engine.cold_start_s if self.measured.engine else 0.0

    @property
    def lead_s(self) -> float:
        """How far ahead it looks: a node that is wanted then has to be started now."""
        return STEP_S + LEAD_STARTS * self.cold_start_s

    @property
    def settle_s(self) -> float:
        """How long less is wanted before there is less: a start must be worth its time."""
        return max(SETTLE_S, SETTLE_STARTS * self.cold_start_s)


def plans_read(*, actor: Actor, now: datetime) -> list[PlannedPool]:
    """Of all pools that generate, by name; raises TooMuchToRead."""
    start, end = whole_hours(MEASURED_DAYS, now)
    pools = capacity_read(actor=actor, start=start, end=end)
    with organization_scope([EVERYONE]):
        found = Objective.objects.filter(organization=EVERYONE, ended_at=None, enabled=True)
        timed = list(found.filter(indicator__in=[TTFT, INTER_TOKEN]).order_by("name"))
    return [_planned(pool, timed, (start, end), now) for pool in pools]


def _planned(
    measured: MeasuredLoad,
    objectives: Iterable[Objective],
    within: tuple[datetime, datetime],
    now: datetime,
) -> PlannedPool:
    pool, models = measured.pool, measured.models
    since = now - timedelta(days=HISTORY_DAYS)
    history = rates(measured.parts, since, now, STEP_S)
    promises = tuple(_promise(one, models, within) for one in objectives if _is_of(one, measured))
    bounds: tuple[NodeBound, ...] = ()
    if measured.load is not None and measured.engine is not None:
        bounds = node_bounds(measured.load, measured.engine, promises)
    least = nodes_min_at(pool.nodes_min, windows_from(pool.warm_schedule), now)
    cold_start_s = measured.engine.cold_start_s if measured.engine else 0.0
    outlook = forecast(history, now.timestamp(), STEP_S + LEAD_STARTS * cold_start_s)
    plan = make_plan(outlook, bounds, least=least, most=pool.nodes_max)
    return PlannedPool(measured, least, promises, bounds, history, plan)


def _is_of(objective: Objective, measured: MeasuredLoad) -> bool:
    """Whether requests that the pool serves count for it."""
    return objective.model in ("", *measured.models) and objective.pool in ("", measured.pool.name)


def _promise(objective: Objective, models: list[str], within: tuple[datetime, datetime]) -> Promise:
    share = objective.target_ppm / MILLION
    apart_us = 0.0
    if objective.indicator == TTFT:
        parts = (PREFILL, NETWORK, OVERHEAD)
        whole: dict[str, Histogram] = {part: Histogram() for part in parts}
        for model in models:
            found = series_whole(whole_query(*within, everyone=parts, model=model))
            for part, histogram in found.items():
                whole[part].merge(histogram)
        apart_us = sum(one.percentile(share) or 0.0 for one in whole.values())
    return Promise(
        name=objective.name,
        indicator=objective.indicator,
        threshold_us=objective.threshold,
        share=share,
        apart_us=apart_us,
    )


def plans_keep(now: datetime | None = None) -> int:
    """The job: plans for the signal to follow; returns how many. What cannot be read in time keeps
    its plan until that is over."""
    moment = now or timezone.now()
    try:
        found = plans_read(actor=OPERATOR, now=moment)
    except (TooMuchToRead, DatabaseError):
        log.exception("plans_not_made")
        return 0
    for one in found:
        PoolPlan.objects.update_or_create(
            pool=one.measured.pool,
            defaults={
                "nodes": one.plan.nodes,
                "settle_s": one.settle_s,
                "reasons": list(one.plan.reasons),
                "made_at": moment,
                "until": moment + PLAN_LIFE,
            },
        )
    return len(found)
