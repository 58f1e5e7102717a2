"""Letting nodes in. What is seen of them is written by gateways (`sql/functions`)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.catalog.pools import pool_known
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.permissions import Action
from controlplane.fleet.models import Node, NodeCredential, NodeStatus
from controlplane.kernel.keys.format import NODE_PREFIX, digest, new_credential, redacted
from controlplane.tenants.access import require
from controlplane.tenants.models import User
from controlplane.tenants.services import REASON_CHARS_MAX, clean_models, clean_name

# How gateways say a node's id where they might as well say its name.
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class CreatedCredential:
    """A new credential and its secret, which is known here and never again."""

    credential: NodeCredential
    secret: str = field(repr=False)


def clean_node_name(name: str) -> str:
    """A name that cannot be taken for another node's id; raises ValidationError."""
    name = clean_name(name)
    if _ID.fullmatch(name):
        raise ValidationError({"name": "Must not be 32 hexadecimal digits, as ids of nodes are."})
    return name


def node_credential_create(
    *, actor: Actor, name: str, pool: str, models: Iterable[str] | None = None
) -> CreatedCredential:
    """A credential for the node of that name, which is registered first if it is new.

    A known node moves to this pool; its live links are cut, and it must say the new one. It is
    approved by that, also one that was waiting, draining or removed.
    """
    require(actor, Action.FLEET_MANAGE)
    name = clean_node_name(name)
    pool_known(pool)
    made = new_credential(NODE_PREFIX)
    with transaction.atomic():
        node, _ = Node.objects.update_or_create(
            name=name, defaults={"pool": pool, "standing": NodeStatus.ACTIVE, "drain_until": None}
        )
        row = NodeCredential.objects.create(
            node=node,
            key_id=made.key_id,
            digest=digest(made.text, settings.KEY_PEPPER),
            redacted=redacted(made),
            allowed_models=clean_models(models),
            created_by=actor if isinstance(actor, User) else None,
        )
        audit_record(
            actor,
            "node_credential.create",
            subject=row,
            organization_id=None,
            detail={"node": name, "pool": pool, "key": row.redacted, "models": row.allowed_models},
        )
    return CreatedCredential(row, made.text)


def node_credential_revoke(*, actor: Actor, credential: NodeCredential, reason: str = "") -> bool:
    """Refuse the credential from now on; gateways cut its live link. False if it was before."""
    require(actor, Action.FLEET_MANAGE)
    if len(reason) > REASON_CHARS_MAX:
        raise ValidationError({"reason": f"At most {REASON_CHARS_MAX} characters."})
    with transaction.atomic():
        changed = NodeCredential.objects.filter(id=credential.id, revoked_at=None).update(
            revoked_at=timezone.now(), revoked_reason=reason
        )
        if changed:
            audit_record(
                actor,
                "node_credential.revoke",
                subject=credential,
                organization_id=None,
                detail={"key": credential.redacted, "reason": reason},
            )
    return bool(changed)
