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
from controlplane.fleet.overview import NodeView, nodes_of_models, signals
from controlplane.fleet.scaling import SETTLE_S
from controlplane.hosts.models import Deployment, DeploymentReplica, Host
from controlplane.tenants.access import require

# An agent reports every few seconds; after this it counts as away.
FRESH = timedelta(seconds=20)
# How long a node of others that went away counts in a pool's plan: a gateway that starts again
# has it back before a replica would have started in its place.
OTHERS_SETTLE = timedelta(seconds=SETTLE_S)
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
    return deployment_views(now, plan_shares(now))


def deployment_views(now: datetime, shares: Mapping[UUID, int]) -> list[DeploymentView]:
    """All deployments as they stand with these `plan_shares`; a constant number of queries."""
    known = {model.name for model in model_list()}
    ready = {view.node.name for view in nodes_of_models(now, known) if view.ready}
    placed: dict[UUID, list[ReplicaView]] = defaultdict(list)
    for each in replica_views(DeploymentReplica.objects.all(), ready):
        placed[each.row.deployment_id].append(each)
    rows = Deployment.objects.order_by("name")
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
    less those that others run, in parts as equal as can be.

    While the pool wants any, each model that no other node serves has at least one. One that staff
    have stopped, with 0 replicas, stays so.
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
        nodes = [view for view in signal.view.nodes if view.node.name not in own]
        others = [view for view in nodes if _counts(view, now)]
        found |= _parts(rows, signal.desired, others)
    return found


def _counts(view: NodeView, now: datetime) -> bool:
    """Whether it serves, or went away a moment ago."""
    lately = view.seen_at is not None and now - view.seen_at < OTHERS_SETTLE
    return view.ready or (view.state == "away" and lately)


def _parts(rows: list[Deployment], desired: int, others: list[NodeView]) -> dict[UUID, int]:
    """Of one pool's deployments, by name: first one for each model, then always the least."""
    parts = {row.id: 0 for row in rows}
    served = {name for view in others for name in view.serves}
    for row in rows if desired else ():
        if row.model not in served:
            parts[row.id] = 1
            served.add(row.model)
    for _ in range(desired - len(others) - sum(parts.values())):
        parts[min(parts, key=parts.__getitem__)] += 1
    return parts
