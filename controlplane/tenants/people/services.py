"""Services of members: who is in an organization, in which role, and how that ends.

An organization keeps an owner, and no one grants or takes a role beyond what their own allows.
"""

import uuid
from collections.abc import Iterable

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Operator, audit_record
from controlplane.core.permissions import GRANTABLE, MATRIX, Action, Role
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import membership_of, require, role_of
from controlplane.tenants.models import AdminKey, ApiKey, Membership, Organization, User
from controlplane.tenants.room import member_room
from controlplane.tenants.sign_in.accounts import member_links_end
from controlplane.tenants.sign_in.sessions import sessions_end


def membership_set(
    *, actor: Actor, organization: Organization, user: User, role: Role
) -> Membership:
    """Make a user a member, or change their role; no one grants more than they may."""
    require(actor, Action.MEMBER_MANAGE, organization.id)
    held = membership_of(user, organization.id)
    before = held.role if held else None
    require_grantable(actor, organization.id, {role, before} - {None})
    with organization_scope([organization.id]):
        _keep_an_owner(organization, user, role)
        if before is None:
            member_room(organization.id)
        made, _ = Membership.objects.update_or_create(
            organization=organization, user=user, defaults={"role": role.value}
        )
        member_links_end(user)
        if before is not None:
            _end_tokens(user)
        audit_record(
            actor,
            "membership.set",
            subject=made,
            organization_id=organization.id,
            detail={"user": user.email, "role": role.value, "before": before and before.value},
            changed=({"role": before and before.value}, {"role": role.value}),
        )
    return made


def membership_end(*, actor: Actor, membership: Membership) -> list[ApiKey]:
    """Remove a member at once; returns keys that they made and that go on working.

    Programs may depend on those, so that whoever removes the member decides about each.
    """
    organization, user = membership.organization, membership.user
    require(actor, Action.MEMBER_MANAGE, organization.id)
    require_grantable(actor, organization.id, {Role(membership.role)})
    now = timezone.now()
    with organization_scope([organization.id]):
        _keep_an_owner(organization, user, None)
        deleted, _ = Membership.objects.filter(
            organization=organization, user=user, role=membership.role
        ).delete()
        if not deleted:
            raise Membership.DoesNotExist
        _end_tokens(user)
        keys = ApiKey.objects.filter(created_by=user, revoked_at=None).order_by("-id")
        left = [key for key in keys if key.state(now) == "active"]
        audit_record(
            actor,
            "membership.end",
            subject=membership,
            organization_id=organization.id,
            detail={
                "user": user.email,
                "role": membership.role,
                "keys_left": [key.redacted for key in left],
            },
        )
    return left


def user_deactivate(*, actor: Actor, user: User) -> bool:
    """Close an account: its sessions, sockets and Playground tokens end. False where it was so."""
    require(actor, Action.USER_CREATE)
    with transaction.atomic():
        # The condition decides a race; losing it is an ordinary answer.
        if not User.objects.filter(id=user.id, is_active=True).update(is_active=False):
            return False
        _end_tokens(user)
        ended = sessions_end(actor=actor, user=user)
        audit_record(
            actor,
            "user.deactivate",
            subject=user,
            organization_id=None,
            detail={"email": user.email, "sessions": ended},
        )
    user.is_active = False
    return True


def person_behind(actor: Actor) -> User | None:
    """Whose rights to give roles count: a key's are its maker's."""
    person = actor.created_by if isinstance(actor, AdminKey) else actor
    return person if isinstance(person, User) else None


def require_grantable(
    actor: Actor, organization_id: uuid.UUID, roles: Iterable[Role | None]
) -> None:
    """Return if the actor may give and take these roles; raises PermissionDenied.

    A key gives and takes those of its maker that may do nothing that the key itself may not.
    """
    if isinstance(actor, Operator):
        return
    person = person_behind(actor)
    own = role_of(person, organization_id) if person else None
    allowed = GRANTABLE[own] if own else frozenset()
    if isinstance(actor, AdminKey):
        allowed = frozenset(role for role in allowed if MATRIX[role] <= set(actor.actions))
    if not set(roles) <= allowed:
        raise PermissionDenied(Action.MEMBER_MANAGE)


def _keep_an_owner(organization: Organization, user: User, role: Role | None) -> None:
    # The organization's row is the lock: two owners cannot demote each other at once.
    Organization.objects.select_for_update().get(id=organization.id)
    owners = set(
        Membership.objects.filter(organization=organization, role=Role.OWNER.value).values_list(
            "user_id", flat=True
        )
    )
    if role != Role.OWNER and owners == {user.id}:
        raise ValidationError({"role": "An organization must have at least one owner."})


def _end_tokens(user: User) -> None:
    # Signed tokens cannot be taken back one by one: gateways refuse all made before now.
    User.objects.filter(id=user.id).update(tokens_from=timezone.now())
