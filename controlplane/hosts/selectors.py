"""Reads of hosts and deployments, as API and page tell them."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from django.db.models import QuerySet

from controlplane.catalog.models import PlanMode, Pool
from controlplane.catalog.selectors import model_list
from controlplane.catalog.warm import nodes_min_at, windows_from
from controlplane.core.audit.entries import OPERATOR, Actor
from controlplane.core.permissions import Action
from controlplane.fleet.overview import nodes_of_models, signals
from controlplane.hosts.models import Deployment, DeploymentReplica, Host
from controlplane.tenants.access import require

# An agent reports every few seconds; after this it counts as away.
FRESH = timedelta(seconds=20)
Row = TypeVar("Row", Host, Deployment)


@dataclass(frozen=True)
class ReplicaView:
    """A replica and whether its node serves now."""

    row: DeploymentReplica
    ready: bool


@dataclass(frozen=True)
class DeploymentView:
    """A deployment with its replicas, oldest first; `wanted` is their number at this time."""

    row: Deployment
    replicas: list[ReplicaView]
    wanted: int

    @property
    def staying(self) -> list[ReplicaView]:
        return [each for each in self.replicas if not each.row.leaving]

    @property
    def ready(self) -> int:
        """Replicas of the current generation that serve."""
        return sum(each.ready and self.current(each) for each in self.staying)

    @property
    def state(self) -> str:
        """One of removing, refused, upgrading, starting, draining, stopped and serving."""
        if self.row.removed_at:
            return "removing"
        if self.row.message:
            return "refused"
        if not all(self.current(each) for each in self.staying):
            return "upgrading"
        if self.ready < self.wanted:
            return "starting"
        if not self.wanted:
            return "draining" if self.replicas else "stopped"
        return "serving"

    def current(self, replica: ReplicaView) -> bool:
        return replica.row.generation == self.row.generation


def is_fresh(host: Host, now: datetime) -> bool:
    """Whether its agent has reported lately."""
    return host.seen_at is not None and now - host.seen_at < FRESH


def host_get(of: type[Row], *, user: Actor, name: str) -> Row:
    """A host or a deployment, for staff; raises ObjectDoesNotExist."""
    require(user, Action.FLEET_VIEW)
    return of.objects.get(name=name)


def host_list(*, user: Actor) -> list[Host]:
    require(user, Action.FLEET_VIEW)
    return list(Host.objects.order_by("name"))


def deployment_list(*, user: Actor, now: datetime) -> list[DeploymentView]:
    """All deployments by name, for staff."""
    require(user, Action.FLEET_VIEW)
    return deployment_views(now)


def deployment_views(now: datetime) -> list[DeploymentView]:
    """All deployments as they stand; a constant number of queries."""
    known = {model.name for model in model_list()}
    ready = {view.node.name for view in nodes_of_models(now, known) if view.ready}
    placed: dict[UUID, list[ReplicaView]] = defaultdict(list)
    for each in replica_views(DeploymentReplica.objects.all(), ready):
        placed[each.row.deployment_id].append(each)
    rows, shares = Deployment.objects.order_by("name"), plan_shares(now)
    return [DeploymentView(row, placed[row.id], replicas_wanted(row, now, shares)) for row in rows]


def replica_views(rows: QuerySet[DeploymentReplica], ready: Collection[str]) -> list[ReplicaView]:
    """These replicas, oldest first, where the nodes of these names serve now."""
    found = rows.select_related("host").order_by("id")
    return [ReplicaView(row, row.node_name in ready) for row in found]


def replicas_wanted(row: Deployment, now: datetime, shares: Mapping[UUID, int]) -> int:
    """What its schedule and its own number ask for at this time; where its pool's plan is followed,
    its share of that instead of the number."""
    if row.removed_at:
        return 0
    return nodes_min_at(shares.get(row.id, row.replicas), windows_from(row.schedule), now)


def plan_shares(now: datetime) -> dict[UUID, int]:
    """What each deployment runs of its pool, where agents follow the plan: nodes that are desired
    less those that others run, in equal parts, of which the first by name have the rest.

    One that staff have stopped, with 0 replicas, stays so.
    """
    modes = dict(Pool.objects.values_list("name", "plan_mode"))
    if PlanMode.AGENTS not in modes.values():
        return {}
    pools = {model.name: model.pool for model in model_list()}
    own = set(DeploymentReplica.objects.values_list("node_name", flat=True))
    running: dict[str, list[Deployment]] = defaultdict(list)
    for row in Deployment.objects.filter(removed_at=None, replicas__gt=0).order_by("name"):
        running[pools.get(row.model, "")].append(row)
    found: dict[UUID, int] = {}
    for signal in signals(actor=OPERATOR, now=now):
        rows = running[signal.pool.name]
        if signal.pool.plan_mode != PlanMode.AGENTS or not rows:
            continue
        others = sum(view.ready and view.node.name not in own for view in signal.view.nodes)
        each, rest = divmod(max(0, signal.desired - others), len(rows))
        found |= {row.id: each + (place < rest) for place, row in enumerate(rows)}
    return found
