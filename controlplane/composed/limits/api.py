"""Limits under /api/organizations/<id>/: of the organization, its projects and its keys."""

from types import SimpleNamespace
from typing import Any, TypedDict
from uuid import UUID

import msgspec
from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response

from controlplane.composed.limits.selectors import effective_limits
from controlplane.core.answers import answer_of
from controlplane.core.api.schema import Whole, operation
from controlplane.core.api.views import OF_ORGANIZATION, ApiView
from controlplane.core.permissions import Action
from controlplane.kernel.ids import AnyId, ApiKeyId, id_of_type, public_id
from controlplane.quotas.selectors import limit_list
from controlplane.quotas.services import LimitedPart, LimitSet, Subject, rate_limit_set
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey
from controlplane.tenants.people.selectors import project_of
from controlplane.tenants.selectors import apikey_get, organization_get


class LimitsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """All limits; null, or left out, is none."""

    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    requests_per_day: int | None = None
    concurrency: int | None = None


class PartLimitsBody(LimitsBody):
    """The same for all requests, for those to a model, or for those of each end user."""

    model: str = ""
    per_user: bool = False


class LimitsJson(TypedDict):
    """The limits of one key, project or organization, or of a part of its requests."""

    id: AnyId
    scope: str
    requests_per_min: int | None
    tokens_per_min: int | None
    requests_per_day: int | None
    concurrency: int | None
    model: str
    per_user: bool


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


class KeyView(ApiView, under=f"{OF_ORGANIZATION}/keys/<key:inference_key>"):
    """What operations on one key share."""

    def found(self, organization_id: UUID, inference_key: UUID) -> ApiKey:
        """The key, in this organization; raises DoesNotExist."""
        require(self.actor(), Action.KEY_VIEW, organization_id)
        key = apikey_get(user=self.actor(), apikey_id=inference_key)
        if key.organization_id != organization_id:
            raise ApiKey.DoesNotExist
        return key


class KeyLimits(KeyView, at="/limits"):
    @operation(body=PartLimitsBody, answer=LimitsJson)
    def put(self, organization_id: UUID, inference_key: UUID) -> Response:
        """Set all limits of a key and of the keys in its rotation."""
        key = self.found(organization_id, inference_key)
        return _put(self, key, key.limits_id, "key")


class AllLimits(ApiView, at=f"{OF_ORGANIZATION}/limits"):
    @operation(list_of=Whole(LimitsJson))
    def get(self) -> Response:
        """List the limits of the organization, its projects and keys."""
        rows = limit_list(**self.whose())
        return self.listed(rows, lambda r: _limits_json(r.subject_id, r.scope, vars(r)))

    @operation(body=PartLimitsBody, answer=LimitsJson)
    def put(self, organization_id: UUID) -> Response:
        """Set all limits of the organization."""
        actor = self.actor()
        organization = organization_get(user=actor, organization_id=organization_id)
        return _put(self, organization, organization.id, "organization")


class ProjectLimits(ApiView, at=f"{OF_ORGANIZATION}/projects/<proj:project_id>/limits"):
    @operation(body=PartLimitsBody, answer=LimitsJson)
    def put(self, organization_id: UUID, project_id: UUID) -> Response:
        """Set all limits of a project."""
        actor = self.actor()
        project = project_of(actor=actor, organization_id=organization_id, project_id=project_id)
        return _put(self, project, project.id, "project")


class EffectiveLimits(KeyView, at="/effective"):
    @operation(
        list_of=Whole(EffectiveJson, EffectiveLimitsJson),
        params=[OpenApiParameter("model", str, required=True, description="A model's name.")],
    )
    def get(self, organization_id: UUID, inference_key: UUID) -> Response:
        """Get the limits of every level for a key, and the one that binds."""
        key = self.found(organization_id, inference_key)
        model = self.request.query_params.get("model", "")
        view = effective_limits(key=key, model=model)
        return self.listed(
            view.rows,
            lambda row: answer_of(EffectiveJson, row),
            key=public_id("key", key.id),
            model=model,
            refusal=view.refusal,
        )


def _put(view: ApiView, subject: Subject, subject_id: UUID, scope: str) -> Response:
    body = view.body(PartLimitsBody)
    part, wanted = LimitedPart(subject, body.model, body.per_user), limits_of_body(body)
    rate_limit_set(actor=view.actor(), subject=part, **wanted._asdict())
    return Response(_limits_json(subject_id, scope, msgspec.structs.asdict(body)))


def limits_of_body(body: LimitsBody) -> LimitSet:
    return LimitSet(
        body.requests_per_min, body.tokens_per_min, body.requests_per_day, body.concurrency
    )


def _limits_json(subject: UUID, scope: str, limits: dict[str, Any]) -> LimitsJson:
    told = id_of_type(scope, subject)
    return answer_of(LimitsJson, SimpleNamespace(**limits), id=told, scope=scope)
