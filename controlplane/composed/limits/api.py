"""Limits under /api/organizations/<id>/: of the organization, its projects and its keys."""

from types import SimpleNamespace
from typing import Any, TypedDict
from uuid import UUID

import msgspec
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.composed.limits.selectors import effective_limits
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.views import ApiView
from controlplane.core.permissions import Action
from controlplane.kernel.ids import AnyId, ApiKeyId, id_of_type, public_id
from controlplane.quotas.selectors import limit_list
from controlplane.quotas.services import LimitSet, rate_limit_set
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Project
from controlplane.tenants.selectors import apikey_get, organization_get, project_get


class LimitsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """All limits; null, or left out, is none."""

    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    requests_per_day: int | None = None
    concurrency: int | None = None


class LimitsJson(TypedDict):
    """The limits of one key, project or organization."""

    id: AnyId
    scope: str
    requests_per_min: int | None
    tokens_per_min: int | None
    requests_per_day: int | None
    concurrency: int | None


class EffectiveJson(TypedDict):
    """One dimension: the limit of each level, null for none, and which binds."""

    dimension: str
    levels: dict[str, int | None]
    binds: str | None
    limit: int | None


class EffectiveLimitsJson(TypedDict):
    """What binds a key that asks for a model; `refusal` says why it may not at all."""

    key: ApiKeyId
    model: str
    refusal: str


class KeyView(ApiView):
    """What operations on one key share."""

    def found(self, organization_id: UUID, inference_key: UUID) -> ApiKey:
        """The key, in this organization; raises DoesNotExist."""
        require(self.actor(), Action.KEY_VIEW, organization_id)
        key = apikey_get(user=self.actor(), apikey_id=inference_key)
        if key.organization_id != organization_id:
            raise ApiKey.DoesNotExist
        return key


class KeyLimits(KeyView):
    """`PUT keys/<id>/limits`."""

    @operation(body=LimitsBody, answer=LimitsJson)
    def put(self, request: Request, organization_id: UUID, inference_key: UUID) -> Response:
        """Set all limits of a key and of the keys in its rotation."""
        key, wanted = self.found(organization_id, inference_key), self.body(LimitsBody)
        rate_limit_set(actor=self.actor(), subject=key, **limits_of_body(wanted)._asdict())
        return Response(_limits_json(key.limits_id, "key", limits_of_body(wanted)._asdict()))


class AllLimits(ApiView):
    """`GET | PUT limits`: all there are, and those of the organization."""

    @operation(list_of=Whole(LimitsJson))
    def get(self, request: Request, organization_id: UUID) -> Response:
        """List the limits of the organization, its projects and keys."""
        rows = limit_list(actor=self.actor(), organization_id=organization_id)
        return self.listed(rows, lambda r: _limits_json(r.subject_id, r.scope, vars(r)))

    @operation(body=LimitsBody, answer=LimitsJson)
    def put(self, request: Request, organization_id: UUID) -> Response:
        """Set all limits of the organization."""
        actor = self.actor()
        organization = organization_get(user=actor, organization_id=organization_id)
        wanted = limits_of_body(self.body(LimitsBody))._asdict()
        rate_limit_set(actor=actor, subject=organization, **wanted)
        return Response(_limits_json(organization.id, "organization", wanted))


class ProjectLimits(ApiView):
    """`PUT projects/<id>/limits`."""

    @operation(body=LimitsBody, answer=LimitsJson)
    def put(self, request: Request, organization_id: UUID, project_id: UUID) -> Response:
        """Set all limits of a project."""
        actor = self.actor()
        require(actor, Action.ORGANIZATION_VIEW, organization_id)
        project = project_get(user=actor, project_id=project_id)
        if project.organization_id != organization_id:
            raise Project.DoesNotExist
        wanted = limits_of_body(self.body(LimitsBody))._asdict()
        rate_limit_set(actor=actor, subject=project, **wanted)
        return Response(_limits_json(project.id, "project", wanted))


class EffectiveLimits(KeyView):
    """`GET keys/<id>/effective?model=…`."""

    @operation(
        list_of=Whole(EffectiveJson, EffectiveLimitsJson),
        params=[OpenApiParameter("model", str, required=True, description="A model's name.")],
    )
    def get(self, request: Request, organization_id: UUID, inference_key: UUID) -> Response:
        """Get the limits of every level for a key, and the one that binds."""
        key = self.found(organization_id, inference_key)
        model = request.query_params.get("model", "")
        view = effective_limits(key=key, model=model)
        return self.listed(
            view.rows,
            lambda row: answer_of(EffectiveJson, row),
            key=public_id("key", key.id),
            model=model,
            refusal=view.refusal,
        )


def limits_of_body(body: LimitsBody) -> LimitSet:
    return LimitSet(
        body.requests_per_min, body.tokens_per_min, body.requests_per_day, body.concurrency
    )


def _limits_json(subject: UUID, scope: str, limits: dict[str, Any]) -> LimitsJson:
    told = id_of_type(scope, subject)
    return answer_of(LimitsJson, SimpleNamespace(**limits), id=told, scope=scope)
