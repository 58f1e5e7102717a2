"""`/v1/organization/`: usage, costs, projects, keys and changes in the shapes of OpenAI's API.

Read only. The organization is the admin key's own; a signed-in user of several, and the operator,
name theirs in the header `OpenAI-Organization`.
"""

import uuid
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.ledger.hours import sealed_through
from controlplane.catalog.models import Task
from controlplane.catalog.selectors import model_list
from controlplane.composed.openai_admin import shapes
from controlplane.composed.openai_admin.usage import (
    COST_GROUPS,
    COST_LIMITS,
    GROUPS,
    LIMITS,
    UNIX_MAX,
    ModelsSeen,
    UsageAsk,
    UsageTally,
    Values,
    usage_ask,
    usage_buckets,
)
from controlplane.core.api.schema import operation
from controlplane.core.api.views import ApiView
from controlplane.core.models import AuditEntry
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id, uuid_asked
from controlplane.kernel.money import NANO_PER_USD
from controlplane.telemetry.selectors import key_last_used
from controlplane.tenants.access import require
from controlplane.tenants.audit.selectors import audit_page
from controlplane.tenants.models import ApiKey, Project
from controlplane.tenants.people.selectors import project_of, project_page
from controlplane.tenants.selectors import apikey_page, organization_ids

HEADER = "OpenAI-Organization"
SIGNS = ("gt", "gte", "lt", "lte")
EVERY_MODEL = ModelsSeen(frozenset(), inside=False)
_WHOSE = OpenApiParameter(
    HEADER,
    str,
    OpenApiParameter.HEADER,
    description="Required for callers with several organizations.",
)
_PARAMS = (
    _WHOSE,
    OpenApiParameter("start_time", int, required=True, description="Unix seconds."),
    OpenApiParameter("end_time", int, description="Unix seconds, exclusive; default: now."),
    OpenApiParameter("bucket_width", str, enum=["1h", "1d"], description="Default: `1d`."),
    OpenApiParameter("group_by", str, many=True, enum=list(GROUPS)),
    OpenApiParameter("project_ids", str, many=True),
    OpenApiParameter("api_key_ids", str, many=True),
    OpenApiParameter("models", str, many=True),
    OpenApiParameter("user_ids", str, many=True, description="End users, as requests name them."),
    OpenApiParameter("limit", int, description="Buckets per page."),
    OpenApiParameter("page", str, description="The `next_page` of the previous page."),
)
_COST_PARAMS = tuple(
    OpenApiParameter("group_by", str, many=True, enum=list(COST_GROUPS))
    if each.name == "group_by"
    else OpenApiParameter("bucket_width", str, enum=["1d"])
    if each.name == "bucket_width"
    else each
    for each in _PARAMS
)
_TIMES = tuple(OpenApiParameter(f"effective_at[{sign}]", int) for sign in SIGNS)


class OrganizationView(ApiView, under="v1/organization/"):
    """What these operations share: whose figures they tell."""

    needs = Action.ORGANIZATION_VIEW

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.organization_id = self._organization(request)
        require(self.actor(), self.needs, self.organization_id)

    def _organization(self, request: Request) -> uuid.UUID:
        own = organization_ids(user=self.actor())
        named = request.headers.get(HEADER)
        if named is None and len(own) == 1:
            return own[0]
        if named is None:
            raise ValidationError({HEADER: "Set this header to the organization's id."})
        wrong = ValidationError({HEADER: "Must be an organization's id."})
        return uuid_asked(named, "org", wrong)


class Completions(OrganizationView, at="usage/completions"):
    needs = Action.REQUEST_VIEW
    kind = "completions"

    @operation(answer=shapes.UsagePage, params=_PARAMS)
    def get(self) -> shapes.UsagePage:
        """List usage by hour or day, including empty buckets."""
        ask = usage_ask(self.request.query_params, groups=GROUPS, limits=LIMITS, now=timezone.now())
        found = usage_buckets(
            organization=self.organization_id, ask=ask, groups=GROUPS, models=self.models()
        )
        data = [
            shapes.UsageBucket(
                object="bucket",
                start_time=one.start,
                end_time=one.end,
                results=[usage_result(self.kind, ask, *group) for group in in_order(one.results)],
            )
            for one in found
        ]
        return shapes.UsagePage(data=data, **about(ask))

    def models(self) -> ModelsSeen:
        """All but those that embed: also models that are gone from the catalog."""
        return ModelsSeen(embedders(), inside=False)


class Embeddings(Completions, at="usage/embeddings"):
    kind = "embeddings"

    def models(self) -> ModelsSeen:
        return ModelsSeen(embedders(), inside=True)


class Costs(OrganizationView, at="costs"):
    needs = Action.LEDGER_VIEW

    @operation(answer=shapes.CostPage, params=_COST_PARAMS)
    def get(self) -> shapes.CostPage:
        """List costs by day, including empty buckets; sums equal the ledger."""
        ask = usage_ask(
            self.request.query_params, groups=COST_GROUPS, limits=COST_LIMITS, now=timezone.now()
        )
        found = usage_buckets(
            organization=self.organization_id, ask=ask, groups=COST_GROUPS, models=EVERY_MODEL
        )
        data = [
            shapes.CostBucket(
                object="bucket",
                start_time=one.start,
                end_time=one.end,
                results=[cost_result(ask, *group) for group in in_order(one.results)],
            )
            for one in found
        ]
        return shapes.CostPage(data=data, **about(ask))


class OpenAIProjects(OrganizationView, at="projects"):
    @operation(list_of=shapes.OpenAIProjectJson, params=(_WHOSE,))
    def get(self) -> Response:
        """List projects, newest first."""
        found = project_page(
            actor=self.actor(), organization_id=self.organization_id, ask=self.page_ask("proj")
        )
        return self.page(found, project_json)


class OpenAIProject(OrganizationView, at="projects/<proj:project_id>"):
    @operation(answer=shapes.OpenAIProjectJson, params=(_WHOSE,))
    def get(self, project_id: uuid.UUID) -> shapes.OpenAIProjectJson:
        """Get a project."""
        return project_json(self.project(project_id))

    def project(self, project_id: uuid.UUID) -> Project:
        """Raises DoesNotExist."""
        return project_of(
            actor=self.actor(), organization_id=self.organization_id, project_id=project_id
        )


class ProjectKeys(OpenAIProject, at="projects/<proj:project_id>/api_keys"):
    needs = Action.KEY_VIEW

    @operation(list_of=shapes.ProjectKeyJson, params=(_WHOSE,))
    def get(self, project_id: uuid.UUID) -> Response:
        """List the keys of a project without secrets, newest first."""
        found = apikey_page(
            actor=self.actor(),
            organization_id=self.organization_id,
            project=self.project(project_id),
            ask=self.page_ask("key"),
        )
        used = key_last_used(self.organization_id)
        return self.page(found, lambda key: project_key_json(key, used.get(key.id)))


class AuditLogs(OrganizationView, at="audit_logs"):
    needs = Action.AUDIT_VIEW

    @operation(
        list_of=shapes.AuditLogJson,
        params=(_WHOSE, OpenApiParameter("event_types", str, many=True), *_TIMES),
    )
    def get(self) -> Response:
        """List audit entries, newest first."""
        query = self.request.query_params
        times = {sign: self._moment(f"effective_at[{sign}]") for sign in SIGNS}
        found = audit_page(
            actor=self.actor(),
            organization_id=self.organization_id,
            ask=self.page_ask("audit"),
            actions=[*query.getlist("event_types"), *query.getlist("event_types[]")],
            times={sign: moment for sign, moment in times.items() if moment},
        )
        return self.page(found, audit_json)

    def _moment(self, name: str) -> datetime | None:
        text = self.request.query_params.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(UNIX_MAX))):
            raise ValidationError({name: "Must be a whole number of Unix seconds."})
        return datetime.fromtimestamp(int(text), UTC)


def embedders() -> frozenset[str]:
    return frozenset(model.name for model in model_list(removed=True) if model.task == Task.EMBED)


def about(ask: UsageAsk) -> shapes.About:
    sealed = sealed_through()
    return {
        "object": "page",
        "has_more": ask.next_page is not None,
        "next_page": ask.next_page,
        "sealed_through": int(sealed.timestamp()) if sealed else None,
    }


def in_order(results: dict[Values, UsageTally]) -> list[tuple[Values, UsageTally]]:
    """Groups by their values, so that a question has one answer."""
    return sorted(results.items(), key=lambda group: tuple(map(str, group[0])))


def named_values(ask: UsageAsk, values: Values) -> dict[str, str]:
    """A group's values by OpenAI's names of them."""
    prefixes = {"project_id": "proj", "api_key_id": "key"}
    return {
        name: public_id(prefixes[name], value) if isinstance(value, uuid.UUID) else str(value)
        for name, value in zip(ask.group_by, values, strict=True)
    }


def usage_result(kind: str, ask: UsageAsk, values: Values, tally: UsageTally) -> shapes.UsageResult:
    """One group's tokens; what was not grouped by is null."""
    named = named_values(ask, values)
    return {
        "object": f"organization.usage.{kind}.result",
        "input_tokens": tally.uncached + tally.cached,
        "input_uncached_tokens": tally.uncached,
        "input_cached_tokens": tally.cached,
        "input_cache_write_tokens": 0,
        "input_audio_tokens": 0,
        "output_tokens": tally.output,
        "output_audio_tokens": 0,
        "num_model_requests": tally.requests,
        "project_id": named.get("project_id"),
        "user_id": named.get("user_id"),
        "api_key_id": named.get("api_key_id"),
        "model": named.get("model"),
        "batch": None,
        "service_tier": None,
    }


def cost_result(ask: UsageAsk, values: Values, tally: UsageTally) -> shapes.CostResult:
    """One group's charge; the nearest float of the USD, and the exact amount beside it."""
    named = named_values(ask, values)
    return {
        "object": "organization.costs.result",
        "amount": {"value": tally.nano / NANO_PER_USD, "currency": "usd", "nano_usd": tally.nano},
        "line_item": named.get("line_item"),
        "project_id": named.get("project_id"),
        "api_key_id": named.get("api_key_id"),
        "user_id": named.get("user_id"),
    }


def project_json(project: Project) -> shapes.OpenAIProjectJson:
    return {
        "id": public_id("proj", project.id),
        "object": "organization.project",
        "name": project.name,
        "created_at": int(project.created_at.timestamp()),
        "archived_at": None,
        "status": "active",
    }


def project_key_json(key: ApiKey, used: datetime | None) -> shapes.ProjectKeyJson:
    return {
        "id": public_id("key", key.id),
        "object": "organization.project.api_key",
        "name": key.label,
        "redacted_value": key.redacted,
        "created_at": int(key.created_at.timestamp()),
        "last_used_at": int(used.timestamp()) if used else None,
        "expires_at": int(key.expires_at.timestamp()) if key.expires_at else None,
        "owner_project_access": "active",
        "owner": owner_json(key),
    }


def owner_json(key: ApiKey) -> shapes.KeyOwner:
    """Who made a key; the operator is told as a service account."""
    maker = key.created_by
    if maker is None:
        made = int(key.created_at.timestamp())
        operator = {"id": "operator", "name": "operator", "created_at": made, "role": "member"}
        return {"type": "service_account", "service_account": operator}
    person = {
        "object": "organization.project.user",
        "id": public_id("user", maker.id),
        "name": maker.email,
        "email": maker.email,
        "created_at": int(maker.created_at.timestamp()),
        "role": "member",
    }
    return {"type": "user", "user": person}


def audit_json(entry: AuditEntry) -> shapes.AuditLogJson:
    return {
        "id": public_id("audit", entry.id),
        "type": entry.action,
        "effective_at": int(entry.created_at.timestamp()),
        "actor": {
            "type": "session",
            "session": {
                "user": {"id": entry.actor_public or "operator", "email": entry.actor_label},
                "ip_address": entry.address or None,
                "user_agent": entry.agent or None,
            },
        },
        "subject": {"type": entry.subject_type, "id": entry.subject_public},
        "detail": entry.detail,
    }
