"""Inference keys under /api/organizations/<id>/."""

from datetime import datetime
from typing import Annotated, TypedDict
from uuid import UUID

import msgspec
from django.core.exceptions import ValidationError
from django.utils import timezone
from rest_framework.response import Response

from controlplane.billing.budgets.services import BudgetDraft
from controlplane.composed.keys.services import KeyOrder, key_make, key_report
from controlplane.composed.limits.api import KeyView, LimitsBody, limits_of_body
from controlplane.core.answers import Changed, answer_of
from controlplane.core.api.schema import CREATED, operation
from controlplane.core.api.views import OF_ORGANIZATION, ApiView
from controlplane.core.permissions import Action
from controlplane.kernel.ids import ApiKeyId, ProjectId, kind, public_id
from controlplane.kernel.rules import PRIORITY_NORMAL
from controlplane.tenants import keys
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey
from controlplane.tenants.selectors import apikey_get, apikey_page, project_get

EXAMPLE = {"project": "…", "label": "nightly summaries", "endpoints": ["chat"], "concurrency": 4}
NO_STORE = {"Cache-Control": "no-store"}


class KeyBody(LimitsBody, kw_only=True):
    """A new key. `within` is a key of the same project that it may not be wider than."""

    project: Annotated[UUID, kind("proj")]
    label: str
    models: list[str] | None = None
    endpoints: list[str] | None = None
    read_only: bool = False
    networks: list[str] = []
    tags: list[str] = []
    priority: int = PRIORITY_NORMAL
    lifetime_days: int | None = keys.KEY_LIFETIME_DAYS_DEFAULT
    within: Annotated[UUID, kind("key")] | None = None
    budget_nano: int | None = None
    budget_period: str = "none"
    budget_zone: str = "UTC"


class RotateBody(msgspec.Struct, forbid_unknown_fields=True):
    """For how many seconds the old key works on: 0 to 604,800, which is a week."""

    overlap_s: int = keys.OVERLAP_S_DEFAULT


class RevokeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why, for the audit log."""

    reason: str = ""


class KeyJson(TypedDict):
    """A key without its secret."""

    id: ApiKeyId
    object: str
    label: str
    redacted_value: str
    project: ProjectId
    state: str
    models: list[str] | None
    endpoints: list[str] | None
    read_only: bool
    networks: list[str]
    tags: list[str]
    priority: int
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    replaces: ApiKeyId | None
    replaced_by: ApiKeyId | None


class NewKeyJson(KeyJson):
    """With the secret, which only this answer has."""

    secret: str


class TouchJson(TypedDict):
    """What was charged for one model."""

    model: str
    requests: int
    uncached_tokens: int
    cached_tokens: int
    output_tokens: int
    nano: int


class ReportJson(TypedDict):
    """What a key touched. `last_request_ms` is how long after its revocation one was taken."""

    id: ApiKeyId
    charged: list[TouchJson]
    spent_nano: int
    first_used_at: datetime | None
    last_used_at: datetime | None
    last_request_ms: int | None


class KeysView(ApiView, at=f"{OF_ORGANIZATION}/keys"):
    @operation(list_of=KeyJson)
    def get(self) -> Response:
        """List keys without secrets, newest first."""
        ask = self.page_ask("key")
        found = apikey_page(**self.whose(), ask=ask)
        return self.page(found, key_json)

    @operation(body=KeyBody, answer={CREATED: NewKeyJson}, example=EXAMPLE, step_up=True)
    def post(self, organization_id: UUID) -> Response:
        """Create a key, within the permissions of its creator."""
        actor = self.actor()
        require(actor, Action.KEY_CREATE, organization_id)
        wanted = self.body(KeyBody)
        project = project_get(user=actor, project_id=wanted.project)
        if project.organization_id != organization_id:
            raise ValidationError({"project": "Project not found."})
        within = apikey_get(user=actor, apikey_id=wanted.within) if wanted.within else None
        return _shown(key_make(actor=actor, project=project, order=_order(wanted, within)))


class OneKey(KeyView, at=""):
    @operation(answer=KeyJson)
    def get(self, organization_id: UUID, inference_key: UUID) -> KeyJson:
        """Get a key without its secret."""
        return key_json(self.found(organization_id, inference_key))


class KeyRotation(KeyView, at="/rotate"):
    @operation(body=RotateBody, answer={CREATED: NewKeyJson}, step_up=True)
    def post(self, organization_id: UUID, inference_key: UUID) -> Response:
        """Rotate a key: same terms, limits and budget; the old key expires after the overlap."""
        key = self.found(organization_id, inference_key)
        overlap_s = self.body(RotateBody).overlap_s
        return _shown(keys.apikey_rotate(actor=self.actor(), key=key, overlap_s=overlap_s))


class KeyRevocation(KeyView, at="/revoke"):
    @operation(body=RevokeBody, answer=Changed)
    def post(self, organization_id: UUID, inference_key: UUID) -> Changed:
        """Revoke a key; gateways refuse it within two seconds."""
        key = self.found(organization_id, inference_key)
        reason = self.body(RevokeBody).reason
        changed = keys.apikey_revoke(actor=self.actor(), key=key, reason=reason)
        return {"id": public_id("key", key.id), "changed": changed}


class KeyTouched(KeyView, at="/report"):
    @operation(answer=ReportJson)
    def get(self, organization_id: UUID, inference_key: UUID) -> ReportJson:
        """Get the usage report of a key, for example after a leak."""
        key = self.found(organization_id, inference_key)
        report = key_report(key=key)
        charged = [
            answer_of(
                TouchJson,
                row,
                model=row.model or "",
                uncached_tokens=row.uncached,
                cached_tokens=row.cached,
                output_tokens=row.output,
            )
            for row in report.charged
        ]
        told = answer_of(
            ReportJson,
            report,
            id=key.id,
            charged=charged,
            first_used_at=report.first,
            last_used_at=report.last,
            last_request_ms=report.took_ms,
        )
        return told


def key_json(key: ApiKey) -> KeyJson:
    return answer_of(
        KeyJson,
        key,
        object="organization.project.api_key",
        redacted_value=key.redacted,
        project=key.project_id,
        state=key.state(timezone.now()),
        models=key.allowed_models,
        endpoints=key.allowed_endpoints,
        replaces=key.replaces_id,
        replaced_by=key.replaced_by.id if key.replaced else None,
    )


def _shown(made: keys.CreatedKey) -> Response:
    body: NewKeyJson = {**key_json(made.key), "secret": made.secret}
    return Response(body, status=CREATED, headers=NO_STORE)


def _order(wanted: KeyBody, within: ApiKey | None) -> KeyOrder:
    budget = None
    if wanted.budget_nano is not None:
        budget = BudgetDraft(
            allowance_nano=wanted.budget_nano, period=wanted.budget_period, zone=wanted.budget_zone
        )
    terms = keys.KeyTerms(
        models=wanted.models,
        endpoints=wanted.endpoints,
        read_only=wanted.read_only,
        networks=wanted.networks,
        tags=wanted.tags,
        priority=wanted.priority,
        within=within,
    )
    return KeyOrder(wanted.label, terms, wanted.lifetime_days, limits_of_body(wanted), budget)
