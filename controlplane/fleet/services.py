"""Letting nodes and digests in; one-time tokens by which nodes get a credential of their own; and
what staff decide about a node: approve, drain, take back, remove, forgive, what it may serve.

The token travels to whoever starts the node; the credential only to the node itself. A decision is
a row; every gateway reads it within two seconds and acts on it. What is seen of nodes is written by
gateways (`sql/functions`).
"""

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.catalog.pools import pool_known
from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.jobs.once import once
from controlplane.core.permissions import Action
from controlplane.fleet.models import (
    ONE_TOKEN_OF_A_FORM,
    DigestState,
    EnrolmentToken,
    ModelDigest,
    Node,
    NodeCredential,
    NodeStatus,
)
from controlplane.kernel.keys import format as keys
from controlplane.tenants.access import require
from controlplane.tenants.models import User
from controlplane.tenants.services import REASON_CHARS_MAX, clean_models, clean_name

# How gateways say a node's id where they might as well say its name.
_ID = re.compile(r"[0-9a-f]{32}")
LIFE_HOURS_MAX = 24
LIFE_HOURS_DEFAULT = 1
DRAIN_S_DEFAULT = 300
DRAIN_S_MAX = 24 * 3600
REMOVED = "the node was removed"


@dataclass(frozen=True)
class CreatedCredential:
    """A new credential and its secret, which is known here and never again."""

    credential: NodeCredential
    secret: str = field(repr=False)


def clean_node_name(name: str) -> str:
    name = clean_name(name)
    if _ID.fullmatch(name):
        raise ValidationError({"name": "Must not be 32 hexadecimal digits, as ids of nodes are."})
    return name


def node_credential_create(
    *,
    actor: Actor,
    name: str,
    pool: str,
    models: Iterable[str] | None = None,
    undrain: bool = True,
) -> CreatedCredential:
    """A credential for the node of that name, which is registered first if it is new.

    A known node moves to this pool; its live links are cut, and it must say the new one. It is
    approved by that, also one that was waiting or removed, and unless `undrain` is false one that
    was draining.
    """
    require(actor, Action.FLEET_MANAGE)
    name = clean_node_name(name)
    pool_known(pool)
    made = keys.new_credential(keys.NODE_PREFIX)
    with transaction.atomic():
        node, _ = Node.objects.update_or_create(name=name, defaults={"pool": pool})
        approved = Node.objects.filter(id=node.id)
        if not undrain:
            approved = approved.exclude(standing=NodeStatus.DRAINING)
        approved.update(standing=NodeStatus.ACTIVE, drain_until=None)
        row = NodeCredential.objects.create(
            node=node,
            **keys.stored(made, settings.KEY_PEPPER),
            allowed_models=clean_models(models),
            created_by=actor if isinstance(actor, User) else None,
        )
        audit_record(
            actor,
            "node_credential.create",
            subject=row,
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
            facts: Facts = {"key": credential.redacted, "reason": reason}
            audit_record(actor, "node_credential.revoke", subject=credential, detail=facts)
    return bool(changed)


def digest_decide(*, actor: Actor, digest: ModelDigest, approved: bool) -> bool:
    """Approve or refuse an offered digest; False where that was decided before."""
    require(actor, Action.FLEET_MANAGE)
    state = DigestState.APPROVED if approved else DigestState.REFUSED
    with transaction.atomic():
        other = ModelDigest.objects.filter(id=digest.id).exclude(state=state)
        person = actor if isinstance(actor, User) else None
        changed = other.update(state=state, decided_at=timezone.now(), decided_by=person)
        if changed:
            action = "model_digest.approve" if approved else "model_digest.refuse"
            facts: Facts = {"model": digest.model, "digest": digest.digest}
            audit_record(actor, action, subject=digest, detail=facts)
    return bool(changed)


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
    made = keys.new_credential(keys.ENROL_PREFIX)
    with once(ONE_TOKEN_OF_A_FORM), transaction.atomic():
        row = EnrolmentToken.objects.create(
            **keys.stored(made, settings.KEY_PEPPER),
            pool=draft.pool,
            allowed_models=clean_models(draft.models),
            approved=draft.approved,
            expires_at=timezone.now() + timedelta(hours=draft.life_hours),
            created_by=actor if isinstance(actor, User) else None,
            form=draft.form,
        )
        facts: Facts = {"token": row.redacted, "pool": row.pool, "models": row.allowed_models}
        facts["approved"] = row.approved
        audit_record(actor, "enrolment.create", subject=row, detail=facts)
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
            audit_record(actor, "enrolment.revoke", subject=token, detail={"token": token.redacted})
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
        credential = keys.new_credential(keys.NODE_PREFIX)
        NodeCredential.objects.create(
            node=node,
            **keys.stored(credential, settings.KEY_PEPPER),
            allowed_models=token.allowed_models,
            created_by=token.created_by,
        )
        token.used_at, token.node = timezone.now(), node
        token.save(update_fields=["used_at", "node"])
        facts: Facts = {"name": name, "pool": pool, "key": keys.redacted(credential)}
        audit_record(TokenActor(token), "enrolment.redeem", subject=node, detail=facts)
    return Enrolled(node, credential.text)


class TokenActor:
    """Whoever holds the token acts; the audit names the token."""

    actor_id = None

    def __init__(self, token: EnrolmentToken) -> None:
        self.actor_label = token.redacted


def _token(secret: str) -> EnrolmentToken:
    parsed = keys.parse_credential(secret, keys.ENROL_PREFIX)
    if parsed is None:
        raise EnrolmentRefused
    # The lock makes of two redemptions at once one that comes too late.
    rows = EnrolmentToken.objects.select_for_update().filter(
        key_id=parsed.key_id, used_at=None, expires_at__gt=timezone.now()
    )
    row = rows.first()
    peppers = (settings.KEY_PEPPER, *settings.KEY_PEPPERS_BEFORE)
    if row is None or not keys.is_digest(bytes(row.digest), secret, peppers):
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
            audit_record(actor, "node.forgive", subject=node, detail=facts)
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
        facts: Facts = {"name": node.name, "models": allowed}
        audit_record(actor, "node.allow", subject=node, detail=facts)


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
            audit_record(actor, action, subject=node, detail={"name": node.name, **detail})
    return bool(changed)
