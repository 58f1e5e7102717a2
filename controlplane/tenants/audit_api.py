"""The audit under /api/: of an organization at organizations/<id>/audit, of all else at audit.

Searched by query string; the chain's head lets a program hold what it has read against it later.
"""

from __future__ import annotations

import uuid
from typing import Any, TypedDict

from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.core.api import ApiView
from controlplane.core.api_schema import operation
from controlplane.core.audit_chain import chain_head
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import Action
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.tenants.access import require
from controlplane.tenants.audit import audit_filter, audit_search

SEARCH = (
    OpenApiParameter("actor", str, description="Part of who acted."),
    OpenApiParameter("action", str, description="How the action begins, as `membership`."),
    OpenApiParameter("subject", str, description="A kind of thing, or a thing's id."),
    OpenApiParameter("from", str, description="The first moment, UTC, ISO 8601."),
    OpenApiParameter("to", str, description="The first moment after."),
)


class AuditJson(TypedDict):
    """A row; `before` and `after` hold the values that differ, null where nothing was compared."""

    id: str
    object: str
    created_at: str
    actor: str
    actor_id: str | None
    action: str
    subject_type: str
    subject_id: str
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


class TooMuch(APIException):
    """The rows could not be searched within the bound."""

    status_code = 503
    default_detail = "This search takes too long; ask for less time, or for an action."


class AuditView(ApiView):
    """What both searches share."""

    def found(self, organization_id: uuid.UUID | None) -> Response:
        """A page of rows."""
        try:
            rows = audit_search(
                actor=self.actor(),
                organization_id=organization_id,
                wanted=audit_filter(self.request.query_params),
                ask=self.page_ask(),
            )
        except TooMuchToRead as error:
            raise TooMuch from error
        return self.page(rows, audit_json)


class InstallationAudit(AuditView):
    """`GET audit`: rows that are no organization's, for staff."""

    @operation(list_of=AuditJson, params=SEARCH)
    def get(self, request: Request) -> Response:
        """Newest first."""
        return self.found(None)


class OrganizationAudit(AuditView):
    """`GET organizations/<id>/audit`."""

    @operation(list_of=AuditJson, params=SEARCH)
    def get(self, request: Request, organization_id: uuid.UUID) -> Response:
        """Newest first."""
        return self.found(organization_id)


class AuditHead(ApiView):
    """`GET audit/head`: what `manage.py verify_audit --contains` takes."""

    @operation(answer=HeadJson)
    def get(self, request: Request) -> Response:
        """For staff."""
        require(self.actor(), Action.INSTALLATION_AUDIT)
        head = chain_head()
        number, digest = head or (None, None)
        return Response({"number": number, "digest": digest})


def audit_json(row: AuditEntry) -> AuditJson:
    """A row for programs."""
    return {
        "id": str(row.id),
        "object": "audit_entry",
        "created_at": row.created_at.isoformat(),
        "actor": row.actor_label,
        "actor_id": str(row.actor_id) if row.actor_id else None,
        "action": row.action,
        "subject_type": row.subject_type,
        "subject_id": str(row.subject_id),
        "detail": row.detail,
        "before": row.before,
        "after": row.after,
        "channel": row.channel,
        "address": row.address,
        "agent": row.agent,
        "credential": row.credential,
    }
