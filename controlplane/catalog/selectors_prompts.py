"""Reads of prompt templates, in the scope of one organization."""

import uuid

import msgspec
from django.db.models import Q, TextField
from django.db.models.functions import Cast, Length

from controlplane.catalog.models import PromptTemplate, PromptVersion
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.core.versions.models import State
from controlplane.kernel.prompts import (
    PromptBody,
    PromptMessage,
    PromptProblem,
    Value,
    Variable,
    checked_values,
    filled,
    filled_bytes,
    find_problems,
    stable_messages,
)
from controlplane.tenants.access import require

VERSIONS_SHOWN_MAX = 100
# How many versions of a template gateways keep, as in `blueprint/sql/functions/config_rows.sql`.
SERVED_VERSIONS = 5
BYTES_PER_TOKEN = 4


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A template with the numbers of what is in force, in canary and newest."""

    template: PromptTemplate
    published: int | None
    canary: int | None
    newest: int | None


class PromptDryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a request with these variables would send, and how much of it caches.

    Tokens are estimates at four bytes each: the count is the model's tokenizer's.
    """

    messages: tuple[PromptMessage, ...]
    bytes: int
    tokens: int
    stable_bytes: int
    stable_tokens: int
    problems: list[PromptProblem]


def prompt_list(*, actor: Actor, organization_id: uuid.UUID) -> list[Listed]:
    require(actor, Action.TEMPLATE_VIEW, organization_id)
    with organization_scope([organization_id]):
        templates = list(
            PromptTemplate.objects.filter(organization_id=organization_id)
            .select_related("project", "organization")
            .order_by("name")
        )
        rows = PromptVersion.objects.filter(template__in=templates).order_by("version")
        found = list(rows.values_list("template_id", "version", "state"))
    newest = {template: version for template, version, _ in found}
    now = {(template, state): version for template, version, state in found}
    return [
        Listed(
            template=one,
            published=now.get((one.id, State.PUBLISHED.value)),
            canary=now.get((one.id, State.CANARY.value)),
            newest=newest.get(one.id),
        )
        for one in templates
    ]


def prompt_get(*, actor: Actor, organization_id: uuid.UUID, name: str) -> PromptTemplate:
    """One template; raises DoesNotExist."""
    require(actor, Action.TEMPLATE_VIEW, organization_id)
    with organization_scope([organization_id]):
        rows = PromptTemplate.objects.select_related("project", "organization")
        return rows.get(organization_id=organization_id, name=name)


def prompt_versions(*, actor: Actor, template: PromptTemplate) -> list[PromptVersion]:
    require(actor, Action.TEMPLATE_VIEW, template.organization_id)
    with organization_scope([template.organization_id]):
        rows = PromptVersion.objects.filter(template=template)
        rows = rows.select_related("created_by", "copy_of").order_by("-version")
        return list(rows[:VERSIONS_SHOWN_MAX])


def prompt_version_get(*, actor: Actor, template: PromptTemplate, version: int) -> PromptVersion:
    """One version; raises DoesNotExist."""
    require(actor, Action.TEMPLATE_VIEW, template.organization_id)
    with organization_scope([template.organization_id]):
        rows = PromptVersion.objects.select_related("created_by", "copy_of", "template")
        return rows.get(template=template, version=version)


def body_of(version: PromptVersion) -> PromptBody:
    return msgspec.convert(version.body, PromptBody)


def prompt_dry_run(body: PromptBody, values: dict[str, Value]) -> PromptDryRun:
    """Render with these variables; raises `BadValue`."""
    checked = checked_values(body, values)
    stable = sum(len(message.content.encode()) for message in stable_messages(body))
    size = filled_bytes(body, checked)
    return PromptDryRun(
        messages=filled(body, checked),
        bytes=size,
        tokens=_tokens(size),
        stable_bytes=stable,
        stable_tokens=_tokens(stable),
        problems=find_problems(body),
    )


def sample_values(body: PromptBody) -> dict[str, Value]:
    """Something for every variable, to begin a dry run with."""
    return {each.name: _sample(each) for each in body.variables}


def served_bytes(organization_id: uuid.UUID) -> int:
    """Bytes that gateways keep of an organization's templates; needs its scope."""
    rows = PromptVersion.objects.filter(organization_id=organization_id)
    rows = rows.filter(Q(published_at__isnull=False) | Q(state=State.CANARY))
    rows = rows.annotate(size=Length(Cast("body", TextField())))
    counts: dict[uuid.UUID, int] = {}
    total = 0
    for template, size in rows.order_by("-version").values_list("template_id", "size"):
        counts[template] = counts.get(template, 0) + 1
        if counts[template] <= SERVED_VERSIONS:
            total += size
    return total


def _tokens(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)


def _sample(variable: Variable) -> Value:
    if variable.default is not None:
        return variable.default
    if variable.type == "integer":
        return min(max(0, variable.least), variable.most)
    if variable.type == "choice":
        return variable.choices[0] if variable.choices else ""
    return f"<{variable.name}>"[: variable.chars_max]
