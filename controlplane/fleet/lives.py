"""What staff decide about a node: approve, drain, take back, remove, forgive, what it may serve.

A decision is a row; every gateway reads it within two seconds and acts on it.
"""

from collections.abc import Iterable
from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.permissions import Action
from controlplane.fleet.models import Node, NodeCredential, NodeStatus
from controlplane.tenants.access import require
from controlplane.tenants.services import clean_models

DRAIN_S_DEFAULT = 300
DRAIN_S_MAX = 24 * 3600
REMOVED = "the node was removed"


def node_approve(*, actor: Actor, node: Node) -> bool:
    """Let a waiting node serve; False where it does not wait."""
    return _move(actor, node, "node.approve", (NodeStatus.PENDING,), NodeStatus.ACTIVE)


def node_drain(*, actor: Actor, node: Node, deadline_s: int = DRAIN_S_DEFAULT) -> bool:
    """No new jobs; what still runs after the deadline is ended. False where it is not active."""
    if not 0 <= deadline_s <= DRAIN_S_MAX:
        raise ValidationError({"deadline_s": f"Must be 0 to {DRAIN_S_MAX} seconds."})
    until = timezone.now() + timedelta(seconds=deadline_s)
    wanted = (NodeStatus.ACTIVE,)
    with transaction.atomic():
        moved = _move(actor, node, "node.drain", wanted, NodeStatus.DRAINING, deadline_s=deadline_s)
        if moved:
            Node.objects.filter(id=node.id).update(drain_until=until)
    return moved


def node_undrain(*, actor: Actor, node: Node) -> bool:
    """Give a draining or drained node jobs again; False where it is neither."""
    return _move(actor, node, "node.undrain", (NodeStatus.DRAINING,), NodeStatus.ACTIVE)


def node_remove(*, actor: Actor, node: Node) -> bool:
    """Revoke its credentials, so that gateways cut its links; False where that was done before.

    Its name may be enrolled again.
    """
    staying = (NodeStatus.PENDING, NodeStatus.ACTIVE, NodeStatus.DRAINING)
    with transaction.atomic():
        moved = _move(actor, node, "node.remove", staying, NodeStatus.REMOVED)
        if moved:
            NodeCredential.objects.filter(node=node, revoked_at=None).update(
                revoked_at=timezone.now(), revoked_reason=REMOVED
            )
    return moved


def node_forgive(*, actor: Actor, node: Node) -> bool:
    """End a node's quarantine now; False where there is none."""
    require(actor, Action.FLEET_MANAGE)
    now = timezone.now()
    with transaction.atomic():
        changed = Node.objects.filter(id=node.id, quarantined_until__gt=now).update(
            quarantined_until=None
        )
        if changed:
            facts: Facts = {"name": node.name, "reason": node.quarantine_reason}
            _audit(actor, node, "node.forgive", facts)
    return bool(changed)


def node_allow(*, actor: Actor, node: Node, models: Iterable[str] | None) -> None:
    """Which models it may serve, None for any; its links are created again under the new list.

    Raises ValidationError for a node without a credential, as one that was removed.
    """
    require(actor, Action.FLEET_MANAGE)
    allowed = clean_models(models)
    with transaction.atomic():
        valid = NodeCredential.objects.filter(node=node, revoked_at=None)
        if not valid.update(allowed_models=allowed):
            raise ValidationError({"node": f"{node.name} has no credential: enrol it again."})
        _audit(actor, node, "node.allow", {"name": node.name, "models": allowed})


def _move(
    actor: Actor,
    node: Node,
    action: str,
    before: tuple[NodeStatus, ...],
    after: NodeStatus,
    **detail: int,
) -> bool:
    require(actor, Action.FLEET_MANAGE)
    with transaction.atomic():
        changed = Node.objects.filter(id=node.id, standing__in=before).update(
            standing=after, drain_until=None
        )
        if changed:
            _audit(actor, node, action, {"name": node.name, **detail})
    return bool(changed)


def _audit(actor: Actor, node: Node, action: str, facts: Facts) -> None:
    audit_record(actor, action, subject=node, organization_id=None, detail=facts)
