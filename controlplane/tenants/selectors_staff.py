"""What staff see across organizations to run the installation: names, and what rules look at."""

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Organization, Project

# A scope names each organization: more than these would make every statement slow.
ORGANIZATIONS_MAX = 5_000
PROJECTS_SHOWN_MAX = 1_000


class KeyFacts(NamedTuple):
    """What a key is now, as routing sees it; `models` None allows all."""

    tags: frozenset[str]
    priority: int
    models: frozenset[str] | None = None


def organization_names(
    *, actor: Actor, ids: Iterable[uuid.UUID] | None = None
) -> dict[uuid.UUID, str]:
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


def project_share(*, actor: Actor, project_id: uuid.UUID, organization_id: uuid.UUID) -> Project:
    """One project of any organization; raises DoesNotExist."""
    require(actor, Action.ROUTING_MANAGE)
    with organization_scope([organization_id]):
        return Project.objects.select_related("organization").get(id=project_id)


def project_names(*, actor: Actor, ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Those of the projects asked for that there are."""
    require(actor, Action.ROUTING_MANAGE)
    wanted, found = set(ids), dict[uuid.UUID, str]()
    last = uuid.UUID(int=0)
    while len(found) < len(wanted):
        rows = Organization.objects.filter(id__gt=last).order_by("id").values_list("id", flat=True)
        chunk = list(rows[:ORGANIZATIONS_MAX])
        if not chunk:
            break
        with organization_scope(chunk):
            found.update(Project.objects.filter(id__in=wanted).values_list("id", "name"))
        last = chunk[-1]
    return found


def key_facts(
    *, actor: Actor, organizations: Iterable[uuid.UUID], ids: Iterable[uuid.UUID]
) -> Mapping[uuid.UUID, KeyFacts]:
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
