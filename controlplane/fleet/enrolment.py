"""One-time tokens by which nodes get a credential of their own, and their redemption.

The token travels to whoever starts the node; the credential only to the node itself.
"""

import hmac
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.catalog.pools import pool_known
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.jobs.once import once
from controlplane.core.permissions import Action
from controlplane.fleet.models import (
    ONE_TOKEN_OF_A_FORM,
    EnrolmentToken,
    Node,
    NodeCredential,
    NodeStatus,
)
from controlplane.fleet.services import clean_node_name
from controlplane.kernel.keys.format import (
    ENROL_PREFIX,
    NODE_PREFIX,
    digest,
    new_credential,
    parse_credential,
    redacted,
)
from controlplane.tenants.access import require
from controlplane.tenants.models import User
from controlplane.tenants.services import clean_models

LIFE_HOURS_MAX = 24
LIFE_HOURS_DEFAULT = 1


class EnrolmentRefused(PermissionDenied):
    """The token is unknown, used or over; which of them is no one's business."""


@dataclass(frozen=True)
class CreatedToken:
    """A new token and its secret, which is known here and never again."""

    token: EnrolmentToken
    secret: str = field(repr=False)


@dataclass(frozen=True)
class Enrolled:
    """What a node gets for its token; the credential is known here and never again."""

    node: Node
    credential: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class TokenDraft:
    """What a token lets in: one node, into this pool, with these models (None: any).

    Unless it is `approved` beforehand the node waits until staff have looked at it.
    """

    pool: str
    models: Iterable[str] | None = None
    approved: bool = False
    life_hours: int = LIFE_HOURS_DEFAULT
    form: uuid.UUID | None = None


def token_create(*, actor: Actor, draft: TokenDraft) -> CreatedToken:
    """A token for one node; raises AlreadyCreated for a form that has made one."""
    require(actor, Action.FLEET_MANAGE)
    pool_known(draft.pool)
    if not 1 <= draft.life_hours <= LIFE_HOURS_MAX:
        raise ValidationError({"life_hours": f"Must be 1 to {LIFE_HOURS_MAX}."})
    made = new_credential(ENROL_PREFIX)
    with once(ONE_TOKEN_OF_A_FORM), transaction.atomic():
        row = EnrolmentToken.objects.create(
            key_id=made.key_id,
            digest=digest(made.text, settings.KEY_PEPPER),
            redacted=redacted(made),
            pool=draft.pool,
            allowed_models=clean_models(draft.models),
            approved=draft.approved,
            expires_at=timezone.now() + timedelta(hours=draft.life_hours),
            created_by=actor if isinstance(actor, User) else None,
            form=draft.form,
        )
        audit_record(
            actor,
            "enrolment.create",
            subject=row,
            organization_id=None,
            detail={
                "token": row.redacted,
                "pool": row.pool,
                "models": row.allowed_models,
                "approved": row.approved,
            },
        )
    return CreatedToken(row, made.text)


def token_revoke(*, actor: Actor, token: EnrolmentToken) -> bool:
    """End a token before it was used; False where it was, or is over."""
    require(actor, Action.FLEET_MANAGE)
    now = timezone.now()
    with transaction.atomic():
        changed = EnrolmentToken.objects.filter(
            id=token.id, used_at=None, expires_at__gt=now
        ).update(expires_at=now)
        if changed:
            audit_record(
                actor,
                "enrolment.revoke",
                subject=token,
                organization_id=None,
                detail={"token": token.redacted},
            )
    return bool(changed)


def token_redeem(*, secret: str, name: str, pool: str) -> Enrolled:
    """Register a node and give it a credential; raises EnrolmentRefused or ValidationError.

    A wrong name or pool does not use the token up. A name in use is refused: a token lets a new
    node in, it never takes over one that is here.
    """
    name = clean_node_name(name)
    with transaction.atomic():
        token = _token(secret)
        if pool != token.pool:
            raise ValidationError({"pool": f"This token is for the pool {token.pool!r}."})
        node, made = Node.objects.get_or_create(
            name=name, defaults={"pool": pool, "standing": _standing(token)}
        )
        if not made:
            _take_again(node, token)
        credential = new_credential(NODE_PREFIX)
        NodeCredential.objects.create(
            node=node,
            key_id=credential.key_id,
            digest=digest(credential.text, settings.KEY_PEPPER),
            redacted=redacted(credential),
            allowed_models=token.allowed_models,
            created_by=token.created_by,
        )
        token.used_at, token.node = timezone.now(), node
        token.save(update_fields=["used_at", "node"])
        audit_record(
            TokenActor(token),
            "enrolment.redeem",
            subject=node,
            organization_id=None,
            detail={"name": name, "pool": pool, "key": redacted(credential)},
        )
    return Enrolled(node, credential.text)


class TokenActor:
    """Whoever holds the token acts; the audit names the token."""

    actor_id = None

    def __init__(self, token: EnrolmentToken) -> None:
        self.actor_label = token.redacted


def _token(secret: str) -> EnrolmentToken:
    parsed = parse_credential(secret, ENROL_PREFIX)
    if parsed is None:
        raise EnrolmentRefused
    # The lock makes of two redemptions at once one that comes too late.
    rows = EnrolmentToken.objects.select_for_update().filter(
        key_id=parsed.key_id, used_at=None, expires_at__gt=timezone.now()
    )
    row = rows.first()
    known = digest(secret, settings.KEY_PEPPER)
    if row is None or not hmac.compare_digest(bytes(row.digest), known):
        raise EnrolmentRefused
    return row


def _take_again(node: Node, token: EnrolmentToken) -> None:
    """A node that was removed may come back; any other keeps its name."""
    again = Node.objects.filter(id=node.id, standing=NodeStatus.REMOVED).update(
        standing=_standing(token), pool=token.pool, quarantined_until=None
    )
    node.standing = _standing(token)
    if not again:
        raise ValidationError(
            {"name": f"A node named {node.name!r} already exists; remove it first."}
        )


def _standing(token: EnrolmentToken) -> NodeStatus:
    return NodeStatus.ACTIVE if token.approved else NodeStatus.PENDING
