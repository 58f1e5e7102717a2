"""Whether an actor may do something: memberships held against the matrix; denies by default."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q

from controlplane.core.api.refusals import KeptAbsence
from controlplane.core.api.stepup import SecondFactorRequired
from controlplane.core.audit.entries import Actor, Operator, audit_record
from controlplane.core.counts import counts
from controlplane.core.permissions import (
    PLATFORM_ACTIONS,
    Action,
    Role,
    organization_scope,
    person_scope,
    role_allows,
)
from controlplane.core.rights import right_note
from controlplane.tenants.models import AdminKey, Organization, SecondFactor, User

ATTEMPTS_WINDOW_S = 60
# Of a membership: whether its organization asks for a second factor that its user has not.
LACKS_FACTOR = Q(organization__second_factor_required=True) & ~Exists(
    SecondFactor.objects.filter(user_id=OuterRef("user_id"))
)

# The same of one: each page asks several times, and Django took far longer to write it each time
# than PostgreSQL to answer.
_RIGHTS = """
    SELECT m.role, o.second_factor_required
           AND NOT EXISTS (SELECT FROM second_factors f WHERE f.user_id = m.user_id),
           m.created_at
    FROM memberships m JOIN organizations o ON o.id = m.organization_id
    WHERE m.user_id = %s AND m.organization_id = %s
"""


def role_of(user: User, organization_id: uuid.UUID) -> Role | None:
    """The role by which a user may act in an organization.

    None where they are no member, not active, or lack the second factor that it requires.
    """
    held = membership_of(user, organization_id) if user.is_active else None
    return None if held is None or held.lacks_factor else held.role


class MemberRights(NamedTuple):
    """What a member is, whether the organization asks for a second factor they have not, and since
    when they are one.
    """

    role: Role
    lacks_factor: bool
    since: datetime


def membership_of(user: User, organization_id: uuid.UUID) -> MemberRights | None:
    """What a user is in an organization, whatever they may do there; None where no member."""
    with person_scope(user.id), connection.cursor() as cursor:
        cursor.execute(_RIGHTS, [user.id, organization_id])
        row = cursor.fetchone()
    return MemberRights(Role(row[0]), *row[1:]) if row else None


def require(actor: Actor, action: Action, organization_id: uuid.UUID | None = None) -> None:
    """Return if allowed; strangers get ObjectDoesNotExist (404), members PermissionDenied."""
    if isinstance(actor, Operator):
        return
    try:
        _require(actor, action, organization_id)
    except ObjectDoesNotExist as error:
        _attempt_note(actor, action, organization_id, error)
        raise
    right_note(actor, action, organization_id)


@contextmanager
def permitted(actor: Actor, action: Action, organization_id: uuid.UUID) -> Iterator[None]:
    """The organization's scope, for who may do this there; raises as `require` does."""
    require(actor, action, organization_id)
    with organization_scope([organization_id]):
        yield


def sees_shared_figures(actor: Actor) -> bool:
    """Whether latency, queues and counts of all tenants are shown to an actor: a setting's word."""
    return settings.SHARED_FIGURES or allows(actor, Action.FLEET_VIEW)


def allows(actor: Actor, action: Action, organization_id: uuid.UUID | None = None) -> bool:
    """Whether `require` would return."""
    if isinstance(actor, Operator):
        return True
    try:
        _require(actor, action, organization_id)
    except (ObjectDoesNotExist, PermissionDenied):
        return False
    right_note(actor, action, organization_id)
    return True


def _attempt_note(
    actor: Actor, action: Action, organization_id: uuid.UUID | None, error: ObjectDoesNotExist
) -> None:
    """Leave a row, for staff, of who asked for another tenant's things; one a minute at most.

    Raises KeptAbsence, so that whoever rolls back around it writes the row again.
    """
    found = Organization.objects.filter(id=organization_id).first() if organization_id else None
    key = f"refused:{actor.actor_id or actor.actor_label}"
    if found is None or counts.add(key, ATTEMPTS_WINDOW_S) > 1:
        return

    def told() -> None:
        with transaction.atomic():
            audit_record(
                actor,
                "access.refuse",
                subject=found,
                organization_id=None,
                detail={"action": action.value},
            )

    told()
    raise KeptAbsence(str(error), told) from error


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
    held = membership_of(actor, organization_id) if organization_id else None
    if held is None:
        raise ObjectDoesNotExist("organization")
    if held.lacks_factor:
        raise SecondFactorRequired(action)
    if not role_allows(held.role, action):
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
