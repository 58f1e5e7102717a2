"""What follows from a host's report: replicas are placed, exchanged and drained, and the host is
told what it should run. All in one transaction, one report at a time.
"""

from collections.abc import Iterable

import msgspec
from django.db import connection, transaction
from django.utils import timezone

from controlplane.catalog.selectors import model_list
from controlplane.core.audit.entries import OPERATOR
from controlplane.fleet.models import Gateway, Node, NodeStatus
from controlplane.fleet.selectors import node_credential_active
from controlplane.fleet.services import node_credential_create, node_credential_revoke
from controlplane.hosts.fit import Need, Shape, Spot, place
from controlplane.hosts.models import Deployment, DeploymentReplica, Host
from controlplane.hosts.rollout import Stand, next_moves
from controlplane.hosts.selectors import DeploymentView, ReplicaView, deployment_views, is_fresh
from controlplane.hosts.services import replica_end
from controlplane.kernel.ids import public_id
from inference.contract.hosts import (
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
    """Note what a host tells and say what it should run."""
    now = timezone.now()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('sluice hosts'))")
        host.inventory, host.seen_at = msgspec.to_builtins(report.inventory), now
        host.save(update_fields=["inventory", "seen_at"])
        _note(host, report)
        hosts = [each for each in Host.objects.order_by("name") if is_fresh(each, now)]
        views = deployment_views(now)
        for view in views:
            _step(view, hosts, [each for other in views for each in other.replicas])
        return HostOrders(
            replicas=_wanted(host, report),
            measure=_measure(host),
            gateways=list(Gateway.objects.exclude(url="").values_list("url", flat=True)),
            report_s=REPORT_S,
        )


def _note(host: Host, report: HostReport) -> None:
    told = {each.id: each for each in report.replicas}
    for row in DeploymentReplica.objects.filter(host=host).select_related("deployment"):
        state = told.get(_public(row))
        if state is None and row.leaving:
            replica_end(row)
            continue
        row.told = msgspec.to_builtins(state) if state else {}
        row.save(update_fields=["told"])
        current = row.generation == row.deployment.generation
        if state and state.digest and current and not row.deployment.files_digest:
            row.deployment.files_digest = state.digest
            row.deployment.save(update_fields=["files_digest"])
    for key, size in report.sizes.items():
        row_id, _, generation = key.partition(".")
        deployment = _deployment(row_id, generation)
        if deployment is not None:
            deployment.sizes[host.name] = msgspec.to_builtins(size)
            deployment.save(update_fields=["sizes"])


def _deployment(row_id: str, generation: str) -> Deployment | None:
    known = {f"{row.id.hex}.{row.generation}": row for row in Deployment.objects.all()}
    return known.get(f"{row_id}.{generation}")


def _step(view: DeploymentView, hosts: list[Host], placed: list[ReplicaView]) -> None:
    row = view.row
    if row.removed_at and not view.replicas:
        row.delete()
        return
    standings = [Stand(each.row.id.hex, view.current(each), each.ready) for each in view.staying]
    moves = next_moves(standings, view.wanted)
    for each in view.staying:
        if each.row.id.hex in moves.drain:
            each.row.leaving = True
            each.row.save(update_fields=["leaving"])
    message = ""
    for _ in range(moves.add):
        message = _add(row, hosts, placed)
        if message:
            break
    if message != row.message:
        row.message = message
        row.save(update_fields=["message"])


def _add(row: Deployment, hosts: list[Host], placed: list[ReplicaView]) -> str:
    """Place one replica; what stands against it, empty too while hosts still measure the model."""
    may = [host for host in hosts if not row.hosts or host.name in row.hosts]
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
    spots = [spot for host in able for spot in _spots(host, placed)]
    found = place(size, Shape(row.window, row.sequences), spots)
    if isinstance(found, str):
        return found
    spot, need = found
    host = next(each for each in able if each.name == spot.host)
    placed.append(ReplicaView(_place(row, host, spot, need, size.revision), False))
    return ""


def _place(row: Deployment, host: Host, spot: Spot, need: Need, revision: str) -> DeploymentReplica:
    return DeploymentReplica.objects.create(
        deployment=row,
        host=host,
        node_name=_free_name(row.name),
        generation=row.generation,
        source_kind=row.source_kind,
        source_name=row.source_name,
        revision=revision or row.revision,
        engine=row.engine,
        arguments=row.arguments,
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
            source=_source(row),
            arguments=row.arguments,
            gpu=row.gpu,
            kv=row.kv,
            digest=_digest(row),
            credential="" if _public(row) in report.held else _credential(row, pools),
        )
        for row in rows.order_by("id")
        if row.deployment.model in pools
    ]


def _digest(row: DeploymentReplica) -> str:
    same = row.generation == row.deployment.generation
    return row.deployment.files_digest if same else str(row.told.get("digest", ""))


def _credential(row: DeploymentReplica, pools: dict[str, str]) -> str:
    for earlier in node_credential_active(node_name=row.node_name):
        node_credential_revoke(actor=OPERATOR, credential=earlier, reason=REPLACED)
    model = row.deployment.model
    made = node_credential_create(
        actor=OPERATOR, name=row.node_name, pool=pools[model], models=[model]
    )
    return made.secret


def _measure(host: Host) -> dict[str, ModelSource]:
    """Sources that this host may run and has not told of, or could not tell."""
    rows = Deployment.objects.filter(removed_at=None)
    return {
        f"{row.id.hex}.{row.generation}": _source(row)
        for row in rows
        if (not row.hosts or host.name in row.hosts)
        and row.sizes.get(host.name, {"error": "unknown"}).get("error")
    }


def _source(row: Deployment | DeploymentReplica) -> ModelSource:
    kind: Source = "hub" if row.source_kind == "hub" else "folder"
    return ModelSource(kind, row.source_name, row.revision)


def _public(row: DeploymentReplica) -> str:
    return public_id("replica", row.id)
