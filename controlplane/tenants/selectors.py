"""What a user may see of organizations, and what staff see across them to run the installation.

Reads of users run in the scope of their organizations. All return lists or objects, never lazy
queries: a query read after its scope would find nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from controlplane.core.answers import Page, PageAsk, page_read
from controlplane.core.audit.entries import Actor, Operator
from controlplane.core.permissions import (
    Action,
    Role,
    organization_scope,
    person_scope,
    role_allows,
)
from controlplane.tenants.access import LACKS_FACTOR, MemberRights, allows, permitted, require
from controlplane.tenants.models import AdminKey, ApiKey, Membership, Organization, Project, User

PAGE_ROWS_MAX = 200
# Of a key as it is shown: what comes after the secret that is left out, with its mark.
KEY_END = 5
# A scope names each organization: more than these would make every statement slow.
ORGANIZATIONS_MAX = 5_000
PROJECTS_SHOWN_MAX = 1_000
# Between the names of an organization and of its project.
OF = " · "


def organizations_held(*, user: User) -> list[tuple[Organization, MemberRights]]:
    """Organizations of an active user by name, and what they are in each."""
    if not user.is_active:
        return []
    with person_scope(user.id):
        held = Membership.objects.filter(user_id=user.id).annotate(lacks=LACKS_FACTOR)
        rows = held.select_related("organization").order_by("organization__name", "organization_id")
        return [
            (row.organization, MemberRights(Role(row.role), row.lacks, row.created_at))
            for row in rows
        ]


def organization_list(*, user: User) -> list[Organization]:
    return [organization for organization, _ in organizations_held(user=user)]


def organizations_named(*, name: str) -> list[Organization]:
    """Organizations of that name, for the operator's commands; names need not be unique."""
    return list(Organization.objects.filter(name=name).order_by("id"))


def key_names(*, user: User, organization_id: UUID) -> dict[UUID, str]:
    """Labels of an organization's keys by id; those that share one, as rotated keys, begin with
    their last characters, where no table cuts them off.
    """
    keys = apikey_list(user=user, organization_id=organization_id)
    shared = Counter(key.label for key in keys)
    return {
        key.id: key.label if shared[key.label] == 1 else f"{key.redacted[-KEY_END:]} {key.label}"
        for key in keys
    }


def project_named(organization: Organization, *, name: str) -> Project | None:
    with organization_scope([organization.id]):
        return Project.objects.filter(organization=organization, name=name).first()


def organization_ids(*, user: Actor, action: Action = Action.ORGANIZATION_VIEW) -> list[UUID]:
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


def organization_get(*, user: Actor, organization_id: UUID) -> Organization:
    """One organization; raises DoesNotExist to strangers."""
    return Organization.objects.get(id=organization_id, id__in=organization_ids(user=user))


def project_list(*, user: Actor) -> list[Project]:
    with organization_scope(organization_ids(user=user)):
        rows = Project.objects.select_related("organization")
        return list(rows.order_by("organization__name", "name", "id"))


def project_get(*, user: Actor, project_id: UUID) -> Project:
    """One project; raises DoesNotExist for those of strangers."""
    with organization_scope(organization_ids(user=user)):
        return Project.objects.select_related("organization").get(id=project_id)


def apikey_list(*, user: Actor, organization_id: UUID | None = None) -> list[ApiKey]:
    """Keys, newest first, of an organization, or of all the user's organizations."""
    seen = organization_ids(user=user, action=Action.KEY_VIEW)
    if organization_id is not None:
        seen = [one for one in seen if one == organization_id]
    with organization_scope(seen):
        rows = ApiKey.objects.select_related("project", "created_by", "replaces", "replaced_by")
        return list(rows.order_by("-id")[:PAGE_ROWS_MAX])


def apikeys_named(*, user: Actor, organization_id: UUID, text: str, rows_max: int) -> list[ApiKey]:
    """Keys of an organization whose label has this text in it, newest first."""
    with permitted(user, Action.KEY_VIEW, organization_id):
        rows = ApiKey.objects.filter(organization_id=organization_id, label__icontains=text)
        return list(rows.order_by("-id")[:rows_max])


def apikey_get(*, user: Actor, apikey_id: UUID) -> ApiKey:
    """One key by its row id; raises DoesNotExist for those of strangers."""
    with organization_scope(organization_ids(user=user, action=Action.KEY_VIEW)):
        beside = ("project", "organization", "created_by", "replaces", "replaced_by")
        return ApiKey.objects.select_related(*beside).get(id=apikey_id)


def apikey_page(
    *, actor: Actor, organization_id: UUID, project: Project | None = None, ask: PageAsk
) -> Page[ApiKey]:
    """Keys of an organization, or of one of its projects, newest first."""
    with permitted(actor, Action.KEY_VIEW, organization_id):
        rows = ApiKey.objects.filter(organization_id=organization_id)
        rows = rows.select_related("created_by", "replaces", "replaced_by")
        return page_read(rows.filter(project=project) if project else rows, ask)


def organizations_all(*, rows_max: int) -> list[Organization]:
    return list(Organization.objects.order_by("id")[:rows_max])


def projects_of(organization: Organization) -> list[Project]:
    with organization_scope([organization.id]):
        return list(Project.objects.filter(organization=organization).order_by("name"))


def names_of(organization_id: UUID) -> tuple[str, dict[UUID, str], dict[UUID, str]]:
    """The organization's name, its projects' and its keys' by id; raises DoesNotExist."""
    with organization_scope([organization_id]):
        name = Organization.objects.values_list("name", flat=True).get(id=organization_id)
        projects = Project.objects.filter(organization_id=organization_id)
        keys = ApiKey.objects.filter(organization_id=organization_id)
        return (
            name,
            dict(projects.values_list("id", "name")),
            dict(keys.values_list("id", "label")),
        )


class KeyFacts(NamedTuple):
    """What a key is now, as routing sees it; `models` None allows all."""

    tags: frozenset[str]
    priority: int
    models: frozenset[str] | None = None


def organization_names(*, actor: Actor, ids: Iterable[UUID] | None = None) -> dict[UUID, str]:
    """Those asked for that there are; else all, at most the oldest `ORGANIZATIONS_MAX`."""
    require(actor, Action.ROUTING_MANAGE)
    rows = Organization.objects.order_by("id").values_list("id", "name")
    return dict(rows[:ORGANIZATIONS_MAX] if ids is None else rows.filter(id__in=list(ids)))


def project_shares(*, actor: Actor) -> list[Project]:
    """Projects with their organizations, those of the oldest `ORGANIZATIONS_MAX`, by name."""
    require(actor, Action.ROUTING_MANAGE)
    rows = Organization.objects.order_by("id").values_list("id", flat=True)
    with organization_scope(rows[:ORGANIZATIONS_MAX]):
        found = Project.objects.select_related("organization")
        return list(found.order_by("organization__name", "name", "id")[:PROJECTS_SHOWN_MAX])


def project_counts(*, actor: Actor, besides: set[UUID]) -> tuple[int, int]:
    """How many projects there are besides these, and of how many organizations they are."""
    require(actor, Action.ROUTING_MANAGE)
    projects = organizations = 0
    for chunk in _chunks():
        with organization_scope(chunk):
            rows = Project.objects.exclude(id__in=besides)
            projects += rows.count()
            organizations += rows.values("organization").distinct().count()
    return projects, organizations


def project_share(*, actor: Actor, project_id: UUID, organization_id: UUID) -> Project:
    """One project of any organization; raises DoesNotExist."""
    require(actor, Action.ROUTING_MANAGE)
    with organization_scope([organization_id]):
        return Project.objects.select_related("organization").get(id=project_id)


def project_names(*, actor: Actor, ids: Iterable[UUID]) -> dict[UUID, str]:
    """Those of the projects asked for that there are, each after its organization."""
    require(actor, Action.ROUTING_MANAGE)
    wanted, found, chunks = set(ids), dict[UUID, str](), _chunks()
    while len(found) < len(wanted) and (chunk := next(chunks, None)):
        with organization_scope(chunk):
            named = Project.objects.filter(id__in=wanted).values_list(
                "id", "organization__name", "name"
            )
            found.update({one: f"{home}{OF}{name}" for one, home, name in named})
    return found


def _chunks() -> Iterator[list[UUID]]:
    """Ids of all organizations, as many at a time as a scope may name."""
    rows = Organization.objects.order_by("id").values_list("id", flat=True)
    last = UUID(int=0)
    while chunk := list(rows.filter(id__gt=last)[:ORGANIZATIONS_MAX]):
        yield chunk
        last = chunk[-1]


def organizations_by_name(*, actor: Actor, names: Iterable[str]) -> dict[str, UUID]:
    """Ids by those of the names that exactly one organization has."""
    require(actor, Action.ROUTING_MANAGE)
    found: dict[str, list[UUID]] = {}
    rows = Organization.objects.filter(name__in=list(names))
    for one, name in rows.values_list("id", "name"):
        found.setdefault(name, []).append(one)
    return {name: ids[0] for name, ids in found.items() if len(ids) == 1}


def projects_by_name(*, actor: Actor, names: Iterable[str]) -> dict[str, UUID]:
    """The same of projects, named as `project_names` does."""
    parts = [name.partition(OF) for name in names]
    homes = organizations_by_name(actor=actor, names={home for home, _, _ in parts})
    with organization_scope(list(homes.values())[:ORGANIZATIONS_MAX]):
        rows = Project.objects.filter(name__in={name for _, _, name in parts})
        return {
            f"{home}{OF}{name}": one
            for one, home, name in rows.values_list("id", "organization__name", "name")
        }


def key_facts(
    *, actor: Actor, organizations: Iterable[UUID], ids: Iterable[UUID]
) -> Mapping[UUID, KeyFacts]:
    """Tags and priority of those of the keys asked for that there are."""
    require(actor, Action.ROUTING_MANAGE)
    with organization_scope(organizations):
        rows = ApiKey.objects.filter(id__in=list(ids))
        return {
            key: KeyFacts(frozenset(tags), priority, None if models is None else frozenset(models))
            for key, tags, priority, models in rows.values_list(
                "id", "tags", "priority", "allowed_models"
            )
        }
