"""What staff decide: hosts that may report, and deployments. `reconcile.py` acts on it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from django.conf import settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.catalog.selectors import model_find
from controlplane.catalog.warm import windows_from
from controlplane.core.audit.entries import OPERATOR, Actor, Facts, audit_record
from controlplane.core.permissions import Action
from controlplane.fleet.models import Node
from controlplane.fleet.services import node_remove
from controlplane.hosts.models import HOST_CHARS_MAX, SOURCES, Deployment, DeploymentReplica, Host
from controlplane.hosts.selectors import is_fresh
from controlplane.kernel.keys import format as keys
from controlplane.tenants.access import require
from inference.contract.hosts import (
    REPLICAS_MAX,
    ModelSource,
    Source,
    arguments_wrong,
    source_wrong,
)

TOKEN_LIFE = timedelta(hours=1)
HOSTS_MAX, DEPLOYMENTS_MAX = 500, 200
WINDOW_MAX, SEQUENCES_MAX = 10_000_000, 4_096
_NAME = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{HOST_CHARS_MAX - 1}}}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# What a replica is: a change of one of these is a new generation.
RUNS = ("engine", "source_kind", "source_name", "revision", "arguments", "window", "sequences")


class HostUnknown(PermissionDenied):
    """The token or credential is unknown, used or over; which of them is no one's business."""


@dataclass(frozen=True)
class AddedHost:
    """A host and the one-time token of its agent, which is known here and never again."""

    host: Host
    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class DeploymentDraft:
    """What should run; `hosts` empty is wherever it fits."""

    model: str
    source_kind: str
    source_name: str
    engine: str = "compact"
    revision: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    window: int = 4_096
    sequences: int = 8
    replicas: int = 1
    schedule: list[dict[str, Any]] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


def host_add(*, actor: Actor, name: str) -> AddedHost:
    """A token for the agent of this host; one that is known loses its credential by that."""
    require(actor, Action.FLEET_MANAGE)
    _named(name)
    if not Host.objects.filter(name=name).exists() and Host.objects.count() >= HOSTS_MAX:
        raise ValidationError({"name": f"There are {HOSTS_MAX} hosts already."})
    made = keys.new_credential(keys.ENROL_PREFIX)
    values = keys.stored(made, settings.KEY_PEPPER) | {
        "token_expires_at": timezone.now() + TOKEN_LIFE
    }
    values |= {"enrolled_at": None, "removed_at": None}
    with transaction.atomic():
        host, _ = Host.objects.update_or_create(name=name, defaults=values)
        audit_record(actor, "host.add", subject=host, detail={"name": name, "key": host.redacted})
    return AddedHost(host, made.text)


def host_enrol(*, token: str, name: str) -> str:
    """The credential of a host for its token, once; raises HostUnknown."""
    with transaction.atomic():
        host = _host_of(token, keys.ENROL_PREFIX, lock=True)
        if host.name != name or host.enrolled_at or host.token_expires_at <= timezone.now():
            raise HostUnknown
        made = keys.new_credential(keys.HOST_PREFIX)
        Host.objects.filter(id=host.id).update(
            **keys.stored(made, settings.KEY_PEPPER), enrolled_at=timezone.now()
        )
        detail: Facts = {"name": name, "key": keys.redacted(made)}
        audit_record(OPERATOR, "host.enrol", subject=host, detail=detail)
    return made.text


def host_known(*, credential: str) -> Host:
    """The host behind a credential; raises HostUnknown."""
    return _host_of(credential, keys.HOST_PREFIX)


def host_remove(*, actor: Actor, host: Host) -> bool:
    """Drain all that runs on it, then forget it and refuse its agent.

    One that is silent, or was removed before, is forgotten at once and its nodes are cut: True.
    """
    require(actor, Action.FLEET_MANAGE)
    now = timezone.now()
    with transaction.atomic():
        row = Host.objects.select_for_update(no_key=True).get(id=host.id)
        audit_record(actor, "host.remove", subject=row, detail={"name": row.name})
        replicas = DeploymentReplica.objects.filter(host=row).order_by("id")
        if row.removed_at or not is_fresh(row, now):
            for replica in replicas:
                replica_end(replica)
            row.delete()
            return True
        for replica in replicas.select_for_update(no_key=True):
            replica.leaving = True
            replica.save(update_fields=["leaving"])
        row.removed_at = now
        row.save(update_fields=["removed_at"])
    return False


def replica_end(replica: DeploymentReplica) -> None:
    """Forget a replica, and remove its node."""
    for node in Node.objects.filter(name=replica.node_name):
        node_remove(actor=OPERATOR, node=node)
    replica.delete()


def deployment_create(*, actor: Actor, name: str, draft: DeploymentDraft) -> Deployment:
    """Want a model to run; raises ValidationError that names the field."""
    require(actor, Action.FLEET_MANAGE)
    _named(name)
    if Deployment.objects.filter(name=name).exists():
        raise ValidationError({"name": f"A deployment named {name!r} already exists."})
    if Deployment.objects.count() >= DEPLOYMENTS_MAX:
        raise ValidationError({"name": f"There are {DEPLOYMENTS_MAX} deployments already."})
    _check(draft)
    with transaction.atomic():
        row = Deployment.objects.create(name=name, commit=_commit(draft.revision), **asdict(draft))
        audit_record(actor, "deployment.create", subject=row, detail=_facts(row))
    return row


def deployment_change(
    *, actor: Actor, deployment: Deployment, values: Mapping[str, Any]
) -> Deployment:
    """Change some fields of the draft; replicas are exchanged one by one where that is needed."""
    require(actor, Action.FLEET_MANAGE)
    names = DeploymentDraft.__dataclass_fields__
    with transaction.atomic():
        row = Deployment.objects.select_for_update().get(id=deployment.id)
        if row.removed_at:
            raise ValidationError({"name": "This deployment is being removed."})
        before = {name: getattr(row, name) for name in names}
        after = {**before, **values}
        _check(DeploymentDraft(**after))
        if any(before[name] != after[name] for name in RUNS):
            row.generation += 1
            row.sizes, row.files_digest, row.message = {}, "", ""
            row.commit = _commit(after["revision"])
        told = _facts(row)
        for name, value in after.items():
            setattr(row, name, value)
        row.save()
        audit_record(actor, "deployment.change", subject=row, changed=(told, _facts(row)))
    return row


def deployment_remove(*, actor: Actor, deployment: Deployment) -> bool:
    """Drain all replicas, then forget it; False where that was asked before."""
    require(actor, Action.FLEET_MANAGE)
    with transaction.atomic():
        rows = Deployment.objects.filter(id=deployment.id, removed_at=None)
        changed = rows.update(removed_at=timezone.now(), message="")
        if changed:
            detail: Facts = {"name": deployment.name}
            audit_record(actor, "deployment.remove", subject=deployment, detail=detail)
    return bool(changed)


def _commit(revision: str) -> str:
    """The commit, where the revision is one; that of a branch or tag is told by a host."""
    return revision if _COMMIT.fullmatch(revision) else ""


def _host_of(secret: str, prefix: str, *, lock: bool = False) -> Host:
    parsed = keys.parse_credential(secret, prefix)
    if parsed is None:
        raise HostUnknown
    rows = Host.objects.select_for_update() if lock else Host.objects.all()
    host = rows.filter(key_id=parsed.key_id).first()
    peppers = (settings.KEY_PEPPER, *settings.KEY_PEPPERS_BEFORE)
    if host is None or not keys.is_digest(bytes(host.digest), secret, peppers):
        raise HostUnknown
    return host


def _named(name: str) -> None:
    if not _NAME.fullmatch(name):
        told = f"Must be 1 to {HOST_CHARS_MAX} lowercase letters, digits and hyphens."
        raise ValidationError({"name": told})


def _check(draft: DeploymentDraft) -> None:
    """Raises ValidationError that names the field."""
    if model_find(name=draft.model) is None:
        raise ValidationError({"model": f"{draft.model!r} is not in the catalog."})
    if wrong := arguments_wrong(draft.engine, dict(draft.arguments)):
        raise ValidationError({"arguments" if draft.arguments else "engine": wrong})
    _check_source(draft)
    bounds = {
        "window": (draft.window, 1, WINDOW_MAX),
        "sequences": (draft.sequences, 1, SEQUENCES_MAX),
        "replicas": (draft.replicas, 0, REPLICAS_MAX),
    }
    for name, (value, least, most) in bounds.items():
        if not least <= value <= most:
            raise ValidationError({name: f"Must be {least:,} to {most:,}."})
    known = set(Host.objects.filter(name__in=draft.hosts).values_list("name", flat=True))
    if unknown := sorted(set(draft.hosts) - known):
        raise ValidationError({"hosts": f"Unknown: {', '.join(unknown)}."})
    try:
        windows = windows_from(draft.schedule)
    except (ValueError, msgspec.ValidationError) as error:
        raise ValidationError({"schedule": str(error)}) from error
    if any(each.nodes_min > REPLICAS_MAX for each in windows):
        raise ValidationError({"schedule": f"nodes_min must be at most {REPLICAS_MAX}."})


def _check_source(draft: DeploymentDraft) -> None:
    if draft.source_kind not in SOURCES:
        raise ValidationError({"source_kind": f"Must be one of {', '.join(SOURCES)}."})
    kind: Source = "hub" if draft.source_kind == "hub" else "folder"
    if wrong := source_wrong(ModelSource(kind, draft.source_name, draft.revision)):
        field, told = wrong
        raise ValidationError({"source_name" if field == "name" else field: told})


def _facts(row: Deployment) -> Facts:
    return {
        "name": row.name,
        "model": row.model,
        "engine": row.engine,
        "source": f"{row.source_kind} {row.source_name}",
        "revision": row.revision,
        "arguments": [f"{name}={value}" for name, value in row.arguments.items()],
        "window": row.window,
        "sequences": row.sequences,
        "replicas": row.replicas,
        "schedule": msgspec.json.encode(row.schedule).decode(),
        "hosts": list(row.hosts),
    }
