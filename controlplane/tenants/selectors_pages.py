"""Lists of an organization by cursor, for programs: projects, a project's keys, its changes."""

import uuid
from collections.abc import Iterable, Mapping

from controlplane.core.audit.entries import Actor
from controlplane.core.models import AuditEntry
from controlplane.core.paging import Page, PageAsk, page_read
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Project


def project_page(*, actor: Actor, organization_id: uuid.UUID, ask: PageAsk) -> Page[Project]:
    require(actor, Action.ORGANIZATION_VIEW, organization_id)
    with organization_scope([organization_id]):
        return page_read(Project.objects.filter(organization_id=organization_id), ask)


def apikey_page(*, actor: Actor, project: Project, ask: PageAsk) -> Page[ApiKey]:
    """A project's inference keys with their makers, newest first."""
    require(actor, Action.KEY_VIEW, project.organization_id)
    with organization_scope([project.organization_id]):
        rows = ApiKey.objects.filter(project_id=project.id).select_related("created_by")
        return page_read(rows, ask)


def audit_page(
    *,
    actor: Actor,
    organization_id: uuid.UUID,
    ask: PageAsk,
    actions: Iterable[str] = (),
    times: Mapping[str, object] | None = None,
) -> Page[AuditEntry]:
    """What was changed, newest first; `times` are conditions on `created_at`, such as `gte`."""
    require(actor, Action.AUDIT_VIEW, organization_id)
    wanted = list(actions)
    with organization_scope([organization_id]):
        rows = AuditEntry.objects.filter(organization_id=organization_id)
        if wanted:
            rows = rows.filter(action__in=wanted)
        for sign, moment in (times or {}).items():
            rows = rows.filter(**{f"created_at__{sign}": moment})
        return page_read(rows, ask)
