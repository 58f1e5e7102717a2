"""What follows from a host's report: replicas are placed, exchanged and drained, and the host is
told what it should run.

Locks are of single rows, and taken in this order: a deployment, a host, replicas by id, nodes.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

import msgspec
from django.db import transaction
from django.utils import timezone

from controlplane.catalog.selectors import model_list
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import Gateway, Node, NodeStatus
from controlplane.fleet.selectors import node_credential_active
from controlplane.fleet.services import node_credential_create, node_credential_revoke
from controlplane.hosts.fit import Need, Shape, Spot, place
from controlplane.hosts.models import Deployment, DeploymentReplica, Host
from controlplane.hosts.rollout import Moves, Stand, next_moves
from controlplane.hosts.selectors import (
    DeploymentView,
    ReplicaView,
    deployment_views,
    is_fresh,
    plan_shares,
    replica_views,
    replicas_wanted,
)
from controlplane.hosts.services import HostUnknown, replica_end
from controlplane.kernel.ids import public_id
from inference.contract.hosts import (
    VALUE,
    GpuState,
    HostOrders,
    HostReport,
    Inventory,
    ModelSize,
    ModelSource,
    Source,
    WantedReplica,
)

REPORT_S = 2.0
REPLACED = "replaced by a newer start"
NODE_NUMBERS_MAX = 10_000


def host_report(*, host: Host, report: HostReport) -> HostOrders:
    """Note what a host tells and say what it should run; raises HostUnknown for a removed one."""
    now = timezone.now()
    if not _note(host, report, now):
        raise HostUnknown
    shares = plan_shares(now)
    views = deployment_views(now, shares)
    ready = {each.row.node_name for view in views for each in view.replicas if each.ready}
    for view in views:
        if _is_due(view, report):
            while _advance(view.row, host, report, ready, now, shares):
                continue
    with transaction.atomic():
        if _locked(host) is None:
            raise HostUnknown
        return HostOrders(
            replicas=_wanted(host, report),
            measure=_measure(host),
            gateways=list(Gateway.objects.exclude(url="").values_list("url", flat=True)),
            report_s=REPORT_S,
        )


def _locked(host: Host) -> Host | None:
    return Host.objects.select_for_update(no_key=True).filter(id=host.id).first()


def _note(told_by: Host, report: HostReport, now: datetime) -> bool:
    """Keep what a host tells of itself and of its replicas; False where it is gone."""
    told = {each.id: each for each in report.replicas}
    with transaction.atomic():
        host = _locked(told_by)
        if host is None:
            return False
        host.inventory, host.seen_at = msgspec.to_builtins(report.inventory), now
        host.save(update_fields=["inventory", "seen_at"])
        rows = DeploymentReplica.objects.filter(host=host)
        names = rows.values("node_name")
        removed = Node.objects.filter(standing=NodeStatus.REMOVED, name__in=names)
        gone = set(removed.values_list("name", flat=True))
        for row in rows.select_for_update(no_key=True).order_by("id"):
            state = told.get(_public(row))
            if state is None and row.leaving:
                replica_end(row)
                continue
            # A node that ran is removed by staff alone: another one takes its place.
            row.leaving = row.leaving or (row.node_name in gone and bool(state or row.told))
            row.told = msgspec.to_builtins(state) if state else {}
            row.save(update_fields=["told", "leaving"])
        if host.removed_at and not rows.exists():
            host.delete()
            return False
    return True


def _is_due(view: DeploymentView, report: HostReport) -> bool:
    """Whether a deployment may need something; one that does not is not locked."""
    row = view.row
    told = _source_key(row) in report.sizes or (not row.files_digest and _digest_told(view))
    return bool(row.removed_at or row.message or told or _moves(view) != Moves())


def _moves(view: DeploymentView) -> Moves:
    standings = [Stand(each.row.id.hex, view.current(each), each.ready) for each in view.staying]
    return next_moves(standings, view.wanted)


def _digest_told(view: DeploymentView) -> str:
    """The digest of the oldest replica of this generation that has told one."""
    told = (str(each.row.told.get("digest", "")) for each in view.replicas if view.current(each))
    return next(filter(None, told), "")


def _advance(
    known: Deployment,
    host: Host,
    report: HostReport,
    ready: set[str],
    now: datetime,
    shares: Mapping[UUID, int],
) -> bool:
    """Take a deployment one step on; True where a replica was placed, and more may follow.

    One whose lock another report holds is left to that one.
    """
    with transaction.atomic():
        rows = Deployment.objects.select_for_update(no_key=True, skip_locked=True)
        row = rows.filter(id=known.id).first()
        if row is None:
            return False
        replicas = replica_views(DeploymentReplica.objects.filter(deployment=row), ready)
        view = DeploymentView(row, replicas, replicas_wanted(row, now, shares))
        if row.removed_at and not replicas:
            row.delete()
            return False
        row.files_digest = row.files_digest or _digest_told(view)
        _learn(row, host, report)
        moves = _moves(view)
        placed, row.message = _add(row, ready, now) if moves.add else (False, "")
        for each in view.staying:
            if each.row.id.hex in moves.drain:
                each.row.leaving = True
                each.row.save(update_fields=["leaving"])
        row.save(update_fields=["files_digest", "sizes", "commit", "message"])
        return placed


def _learn(row: Deployment, host: Host, report: HostReport) -> None:
    """Keep what this host says of the model, where it was asked for that."""
    size = report.sizes.get(_source_key(row))
    if size is None or not _is_asked(row, host):
        return
    if row.source_kind == "hub" and not size.error:
        if not VALUE.fullmatch(size.revision) or row.commit not in ("", size.revision):
            return
        # The first host that looks says which commit a branch is; that stays.
        row.commit = size.revision
    row.sizes[host.name] = msgspec.to_builtins(size)


def _add(row: Deployment, ready: set[str], now: datetime) -> tuple[bool, str]:
    """Place one replica: whether that was done, and what stands against it, which is empty too
    while hosts still measure the model."""
    hosts = [each for each in Host.objects.order_by("name") if _may_take(each, row, now)]
    found = _spot_for(row, hosts, ready)
    if isinstance(found, str):
        return False, found
    # Seen without a lock: looked at again under that of this host.
    host = _locked(next(each for each in hosts if each.name == found[0].host))
    if host is None or not _may_take(host, row, now):
        return False, ""
    found = _spot_for(row, [host], ready)
    if isinstance(found, str):
        return False, ""
    _place(row, host, *found)
    return True, ""


def _may_take(host: Host, row: Deployment, now: datetime) -> bool:
    named = not row.hosts or host.name in row.hosts
    return named and host.removed_at is None and is_fresh(host, now)


def _spot_for(row: Deployment, may: list[Host], ready: set[str]) -> tuple[Spot, Need] | str:
    """The best place on these hosts, or what stands against it."""
    sizes = {name: msgspec.convert(size, ModelSize) for name, size in row.sizes.items()}
    sound = {name: size for name, size in sizes.items() if not size.error}
    if row.source_kind == "hub":
        # It is the same for all.
        sound = {host.name: size for size in sound.values() for host in may}
    elif any(host.name not in sizes for host in may):
        return ""
    able = [host for host in may if host.name in sound]
    if may and not able:
        waits = any(host.name not in sizes for host in may)
        return "" if waits else next(size.error for size in sizes.values() if size.error)
    size = sound[able[0].name] if able else ModelSize()
    placed = replica_views(DeploymentReplica.objects.filter(host__in=able), ready)
    spots = [spot for host in able for spot in _spots(host, placed)]
    return place(size, Shape(row.window, row.sequences), spots)


def _place(row: Deployment, host: Host, spot: Spot, need: Need) -> None:
    DeploymentReplica.objects.create(
        deployment=row,
        host=host,
        node_name=_free_name(row.name),
        generation=row.generation,
        source_kind=row.source_kind,
        source_name=row.source_name,
        revision=row.commit or row.revision,
        engine=row.engine,
        arguments=row.arguments,
        window=row.window,
        gpu=spot.gpu,
        kv=need.kv,
        need=need.total,
    )


def _free_name(name: str) -> str:
    """A name that no other node has, since a credential would take it over."""
    nodes = Node.objects.filter(name__startswith=f"{name}-").exclude(standing=NodeStatus.REMOVED)
    taken = {*nodes.values_list("name", flat=True)}
    taken |= {*DeploymentReplica.objects.values_list("node_name", flat=True)}
    numbered = (f"{name}-{number}" for number in range(1, NODE_NUMBERS_MAX))
    return next(each for each in numbered if each not in taken)


def _spots(host: Host, placed: Iterable[ReplicaView]) -> list[Spot]:
    """A host's GPUs or else its memory, less what its replicas have not taken yet."""
    told = msgspec.convert(host.inventory, Inventory)
    here = [each for each in placed if each.row.host_id == host.id]
    if not told.gpus:
        return [Spot(host.name, None, _free(told.memory, told.memory_free, here))]
    return [
        Spot(
            host.name,
            number,
            _free(gpu.memory, gpu.memory_free, [each for each in here if each.row.gpu == number]),
        )
        for number, gpu in enumerate(told.gpus)
    ]


def _free(whole: int | None, free: int | None, here: list[ReplicaView]) -> int | None:
    """Memory is taken late: a cache counts as taken before its first use."""
    if whole is None or free is None:
        return None
    starting = sum(each.row.need for each in here if not each.ready)
    return max(0, min(free - starting, whole - sum(each.row.need for each in here)))


def _wanted(host: Host, report: HostReport) -> list[WantedReplica]:
    pools = {model.name: model.pool for model in model_list()}
    rows = DeploymentReplica.objects.filter(host=host, leaving=False).select_related("deployment")
    return [
        WantedReplica(
            id=_public(row),
            node=row.node_name,
            pool=pools[row.deployment.model],
            model=row.deployment.model,
            engine=row.engine,
            source=_source(row, row.revision),
            arguments=row.arguments,
            gpu=row.gpu,
            window=row.window,
            kv=row.kv,
            share=_share(row, report.inventory),
            digest=_digest(row),
            credential=_credential(row, report, pools),
        )
        for row in rows.order_by("id")
        if row.deployment.model in pools
    ]


def _digest(row: DeploymentReplica) -> str:
    same = row.generation == row.deployment.generation
    return row.deployment.files_digest if same else str(row.told.get("digest", ""))


def _share(row: DeploymentReplica, told: Inventory) -> float:
    """The part of the GPU's or the host's memory that it was given; 1 where that is not known."""
    gpus = dict(enumerate(told.gpus))
    whole = told.memory if row.gpu is None else gpus.get(row.gpu, GpuState()).memory
    return min(1.0, row.need / whole) if whole else 1.0


def _credential(row: DeploymentReplica, report: HostReport, pools: dict[str, str]) -> str:
    """A new credential of its node, where the agent holds none that is good; else nothing.

    Staff may have revoked the one that it holds. While the node of an earlier agent drains, that
    one's stays.
    """
    active = node_credential_active(node_name=row.node_name)
    held = report.held.get(_public(row))
    if held in {each.key_id for each in active} or row.told.get("phase") == "draining":
        return ""
    for earlier in active:
        node_credential_revoke(actor=OPERATOR, credential=earlier, reason=REPLACED)
    model = row.deployment.model
    made = node_credential_create(
        actor=OPERATOR, name=row.node_name, pool=pools[model], models=[model], undrain=False
    )
    return made.secret


def _measure(host: Host) -> dict[str, ModelSource]:
    """Sources that this host may run and has not told of, or could not tell."""
    rows = Deployment.objects.filter(removed_at=None)
    return {
        _source_key(row): _source(row, row.commit or row.revision)
        for row in rows
        if host.removed_at is None and _is_asked(row, host)
    }


def _is_asked(row: Deployment, host: Host) -> bool:
    """Whether this host is asked what the model needs; of the hub's it is known once for all."""
    if row.removed_at or (row.hosts and host.name not in row.hosts):
        return False
    known = row.sizes.values() if row.source_kind == "hub" else [row.sizes.get(host.name)]
    return all(size is None or size["error"] for size in known)


def _source_key(row: Deployment) -> str:
    """What a host is asked under: another generation or commit is another question."""
    return f"{row.id.hex}.{row.generation}.{row.commit}"


def _source(row: Deployment | DeploymentReplica, revision: str) -> ModelSource:
    kind: Source = "hub" if row.source_kind == "hub" else "folder"
    return ModelSource(kind, row.source_name, revision)


def _public(row: DeploymentReplica) -> str:
    return public_id("replica", row.id)
