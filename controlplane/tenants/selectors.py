"""What a user may see of organizations. Every read runs in the scope of the user's organizations.

All return lists or objects, never lazy queries: a query read after its scope would find nothing.
"""

import uuid

from controlplane.core.audit.entries import Actor, Operator
from controlplane.core.paging import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.permissions import Action, Role, role_allows
from controlplane.core.scope import organization_scope, person_scope
from controlplane.tenants.access import LACKS_FACTOR, MemberRights, allows, require
from controlplane.tenants.models import AdminKey, ApiKey, Membership, Organization, Project, User

PAGE_ROWS_MAX = 200


def organizations_held(*, user: User) -> list[tuple[Organization, MemberRights]]:
    """Organizations of an active user by name, and what they are in each."""
    if not user.is_active:
        return []
    with person_scope(user.id):
        held = Membership.objects.filter(user_id=user.id).annotate(lacks=LACKS_FACTOR)
        rows = held.select_related("organization").order_by("organization__name", "organization_id")
        return [(row.organization, MemberRights(Role(row.role), row.lacks)) for row in rows]


def organization_list(*, user: User) -> list[Organization]:
    """Organizations that the user is a member of, by name."""
    return [organization for organization, _ in organizations_held(user=user)]


def organizations_named(*, name: str) -> list[Organization]:
    """Organizations of that name, for the operator's commands; names need not be unique."""
    return list(Organization.objects.filter(name=name).order_by("id"))


def project_named(organization: Organization, *, name: str) -> Project | None:
    """A project of an organization, for the operator's commands."""
    with organization_scope([organization.id]):
        return Project.objects.filter(organization=organization, name=name).first()


def organization_ids(*, user: Actor, action: Action = Action.ORGANIZATION_VIEW) -> list[uuid.UUID]:
    """Ids of the organizations in which the caller may do something; the operator may in all."""
    if isinstance(user, Operator):
        return list(Organization.objects.values_list("id", flat=True))
    if isinstance(user, AdminKey):
        own = user.organization_id
        return [own] if allows(user, action, own) else []
    if not isinstance(user, User) or not user.is_active:
        return []
    with person_scope(user.id):
        held = Membership.objects.filter(user_id=user.id).exclude(LACKS_FACTOR)
        rows = list(held.values_list("organization", "role"))
    return [one for one, role in rows if role_allows(Role(role), action)]


def organization_get(*, user: Actor, organization_id: uuid.UUID) -> Organization:
    """One organization; raises DoesNotExist to strangers."""
    return Organization.objects.get(id=organization_id, id__in=organization_ids(user=user))


def project_list(*, user: Actor) -> list[Project]:
    """Projects of all the user's organizations, each with its organization."""
    with organization_scope(organization_ids(user=user)):
        rows = Project.objects.select_related("organization")
        return list(rows.order_by("organization__name", "name", "id"))


def project_get(*, user: Actor, project_id: uuid.UUID) -> Project:
    """One project; raises DoesNotExist for those of strangers."""
    with organization_scope(organization_ids(user=user)):
        return Project.objects.select_related("organization").get(id=project_id)


def apikey_list(*, user: Actor, organization_id: uuid.UUID | None = None) -> list[ApiKey]:
    """Keys, newest first, of an organization, or of all the user's organizations."""
    seen = organization_ids(user=user, action=Action.KEY_VIEW)
    if organization_id is not None:
        seen = [one for one in seen if one == organization_id]
    with organization_scope(seen):
        rows = ApiKey.objects.select_related("project", "created_by", "replaces", "replaced_by")
        return list(rows.order_by("-id")[:PAGE_ROWS_MAX])


def apikey_get(*, user: Actor, apikey_id: uuid.UUID) -> ApiKey:
    """One key by its row id; raises DoesNotExist for those of strangers."""
    with organization_scope(organization_ids(user=user, action=Action.KEY_VIEW)):
        beside = ("project", "organization", "created_by", "replaces", "replaced_by")
        return ApiKey.objects.select_related(*beside).get(id=apikey_id)


def apikey_page(
    *, actor: Actor, organization_id: uuid.UUID, ask: PageAsk = FIRST_PAGE
) -> Page[ApiKey]:
    """A page of an organization's keys, newest first."""
    require(actor, Action.KEY_VIEW, organization_id)
    with organization_scope([organization_id]):
        rows = ApiKey.objects.filter(organization_id=organization_id)
        return page_read(rows.select_related("replaces", "replaced_by"), ask)
