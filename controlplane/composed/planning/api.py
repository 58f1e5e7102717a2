"""`/api/insights/plan`: nodes that each pool should have, why, and such plans replayed."""

from typing import TypedDict

from django.core.exceptions import ValidationError
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response

from controlplane.composed.planning.plans import PlannedPool, plans_read
from controlplane.composed.planning.replays import (
    REPLAY_DAYS,
    REPLAY_DAYS_MAX,
    cost_nano,
    replayed,
)
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.views import ApiView

DAYS = OpenApiParameter(
    "days", int, description=f"Days to replay, 1 to {REPLAY_DAYS_MAX}; default: {REPLAY_DAYS}."
)


class BoundJson(TypedDict):
    """Up to how many requests per second one node holds this; 0 where not even alone."""

    what: str
    words: str
    per_s: float


class ReplayedJson(TypedDict):
    """A fleet replayed: `late` are requests beyond what its ready nodes hold."""

    name: str
    node_hours: float
    nodes_most: int
    cost_nano: int
    requests: float
    late: float


class PlanJson(TypedDict):
    """A pool's plan: `wanted` nodes, and `nodes` within its bounds; the scarcest bound is first.

    `per_node_s` is how many requests per second a node holds, 0 where that is not known.
    """

    pool: str
    mode: str
    nodes: int
    wanted: int
    nodes_ready: int
    per_s: float
    per_node_s: float
    reasons: list[str]
    bounds: list[BoundJson]
    replayed: list[ReplayedJson]


class PlansView(ApiView, at="api/insights/plan"):
    @operation(list_of=Whole(PlanJson), params=[DAYS])
    def get(self) -> Response:
        """Get the plan of each pool and its replay. Staff only."""
        text, now = self.request.query_params.get("days", str(REPLAY_DAYS)), timezone.now()
        days = days_read(text)
        if days is None:
            raise ValidationError({"days": [f"Must be a number from 1 to {REPLAY_DAYS_MAX}."]})
        found = plans_read(actor=self.actor(), now=now)
        told = [_plan_json(one, days) for one in found]
        return self.listed(told, lambda one: one, "pool")


def days_read(text: str) -> int | None:
    known = {str(days): days for days in range(1, REPLAY_DAYS_MAX + 1)}
    return known.get(text)


def _plan_json(one: PlannedPool, days: int) -> PlanJson:
    fleets = replayed(one, days=days, now=timezone.now())
    return answer_of(
        PlanJson,
        one.plan,
        pool=one.measured.pool.name,
        mode=one.measured.pool.plan_mode,
        nodes_ready=one.measured.nodes,
        per_s=one.plan.outlook.per_s,
        bounds=[answer_of(BoundJson, bound) for bound in one.plan.bounds],
        replayed=[answer_of(ReplayedJson, each, cost_nano=cost_nano(one, each)) for each in fleets],
    )
