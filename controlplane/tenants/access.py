"""Whether an actor may do something: memberships held against the matrix; denies by default."""

import uuid

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied

from controlplane.core.audit import Actor, Operator
from controlplane.core.permissions import PLATFORM_ACTIONS, Action, Role, role_allows
from controlplane.core.rights import right_note
from controlplane.core.scope import person_scope
from controlplane.tenants.models import AdminKey, Membership, User


def role_of(user: User, organization_id: uuid.UUID) -> Role | None:
    """The user's role in an organization; None where they are no member, or not active."""
    if not user.is_active:
        return None
    with person_scope(user.id):
        found = Membership.objects.filter(user_id=user.id, organization_id=organization_id)
        role = found.values_list("role", flat=True).first()
    return Role(role) if role else None


def require(actor: Actor, action: Action, organization_id: uuid.UUID | None = None) -> None:
    """Return if allowed; strangers get ObjectDoesNotExist (404), members PermissionDenied."""
    if isinstance(actor, Operator):
        return
    _require(actor, action, organization_id)
    right_note(actor, action, organization_id)


def allows(actor: Actor, action: Action, organization_id: uuid.UUID | None = None) -> bool:
    """Whether `require` would return."""
    try:
        require(actor, action, organization_id)
    except (ObjectDoesNotExist, PermissionDenied):
        return False
    return True


def _require(actor: Actor, action: Action, organization_id: uuid.UUID | None) -> None:
    if isinstance(actor, AdminKey):
        _require_of_key(actor, action, organization_id)
        return
    if not isinstance(actor, User) or not actor.is_active:
        raise PermissionDenied(action)
    if action in PLATFORM_ACTIONS:
        if not actor.is_staff:
            raise PermissionDenied(action)
        return
    role = role_of(actor, organization_id) if organization_id else None
    if role is None:
        raise ObjectDoesNotExist("organization")
    if not role_allows(role, action):
        raise PermissionDenied(action)


def _require_of_key(key: AdminKey, action: Action, organization_id: uuid.UUID | None) -> None:
    if action in PLATFORM_ACTIONS:
        raise PermissionDenied(action)
    if organization_id != key.organization_id:
        raise ObjectDoesNotExist("organization")
    if action not in key.actions:
        raise PermissionDenied(action)
    # Who made it may have left, or may do less by now: then so may the key.
    if key.created_by is not None and not allows(key.created_by, action, organization_id):
        raise PermissionDenied(action)
