"""The audit under /api/: of an organization at organizations/<id>/audit, of all else at audit.

Searched by query string; the chain's head lets a program hold what it has read against it later.
"""

import uuid
from datetime import datetime
from typing import Any, TypedDict

from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response

from controlplane.core.answers import answer_of
from controlplane.core.api.schema import operation
from controlplane.core.api.views import OF_ORGANIZATION, ApiView
from controlplane.core.audit.chain import chain_head
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import Action
from controlplane.kernel.ids import AnyId, AuditEntryId
from controlplane.tenants.access import require
from controlplane.tenants.audit.selectors import audit_filter, audit_search

SEARCH = (
    OpenApiParameter("actor", str, description="Filter by part of the actor's name."),
    OpenApiParameter("action", str, description="Prefix of the action, such as `membership`."),
    OpenApiParameter("subject", str, description="Type or id of the resource."),
    OpenApiParameter("from", str, description="Start, UTC, ISO 8601."),
    OpenApiParameter("to", str, description="End, exclusive."),
)


class AuditJson(TypedDict):
    """A row; `before` and `after` hold the values that differ, null where nothing was compared."""

    id: AuditEntryId
    object: str
    created_at: datetime
    actor: str
    actor_id: AnyId | None
    action: str
    subject_type: str
    subject_id: AnyId
    detail: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    channel: str
    address: str
    agent: str
    credential: str


class HeadJson(TypedDict):
    """The last link of the chain; null before the first."""

    number: int | None
    digest: str | None


class AuditView(ApiView):
    """What both searches share."""

    def found(self, organization_id: uuid.UUID | None) -> Response:
        rows = audit_search(
            actor=self.actor(),
            organization_id=organization_id,
            wanted=audit_filter(self.request.query_params),
            ask=self.page_ask("audit"),
        )
        return self.page(rows, audit_json)


class InstallationAudit(AuditView, at="api/audit"):
    @operation(list_of=AuditJson, params=SEARCH)
    def get(self) -> Response:
        """List changes to the installation, newest first."""
        return self.found(None)


class OrganizationAudit(AuditView, at=f"{OF_ORGANIZATION}/audit"):
    @operation(list_of=AuditJson, params=SEARCH)
    def get(self, organization_id: uuid.UUID) -> Response:
        """List changes in an organization, newest first."""
        return self.found(organization_id)


class AuditHead(ApiView, at="api/audit/head"):
    @operation(answer=HeadJson)
    def get(self) -> HeadJson:
        """Get the latest link of the audit chain. Staff only."""
        require(self.actor(), Action.INSTALLATION_AUDIT)
        head = chain_head()
        number, digest = head or (None, None)
        return {"number": number, "digest": digest}


def audit_json(row: AuditEntry) -> AuditJson:
    return answer_of(
        AuditJson,
        row,
        object="audit_entry",
        actor=row.actor_label,
        actor_id=row.actor_public,
        subject_id=row.subject_public,
    )
