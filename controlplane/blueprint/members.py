"""Members of organizations in a document: who they are, and how they are made and unmade."""

from django.core.exceptions import ValidationError

from controlplane.blueprint import things
from controlplane.blueprint.applying import Applying
from controlplane.blueprint.tenants import organization_of
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Role
from controlplane.tenants.models import Organization
from controlplane.tenants.people.selectors import member_get, member_list
from controlplane.tenants.people.services import membership_end, membership_set
from controlplane.tenants.sign_in.accounts import user_create, user_find


def members_now(actor: Actor, organization: Organization) -> dict[things.Key, things.Fields]:
    rows = [each.membership for each in member_list(actor=actor, organization_id=organization.id)]
    return {(things.MEMBER, organization.name, row.user.email): {"role": row.role} for row in rows}


def member_step(step: Applying) -> None:
    """Someone without an account gets one without a password: single sign-on or a link opens it."""
    _, named, email = step.key
    if "role" not in step.after:
        raise ValidationError({"role": "Required for a new member."})
    user = user_find(email=email) or user_create(actor=step.actor, email=email)
    role = Role(step.after["role"])
    membership_set(actor=step.actor, organization=organization_of(named), user=user, role=role)


def member_end(step: Applying) -> None:
    _, named, email = step.key
    organization, user = organization_of(named), user_find(email=email)
    assert user is not None
    found = member_get(actor=step.actor, organization_id=organization.id, user_id=user.id)
    membership_end(actor=step.actor, membership=found)
