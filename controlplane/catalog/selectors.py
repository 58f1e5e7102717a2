"""Reads of models, prices and pools; of prompt templates in the scope of one organization."""

import uuid
from collections.abc import Iterable
from datetime import datetime

import msgspec
from django.db.models import Q, TextField
from django.db.models.functions import Cast, Length
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from controlplane.catalog.models import Model, Pool, PriceVersion, PromptTemplate, PromptVersion
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, organization_scope
from controlplane.core.versions.models import State
from controlplane.kernel import prompts
from controlplane.kernel.price import Price
from controlplane.tenants.access import permitted, require

VERSIONS_SHOWN_MAX = 100
# How many versions of a template gateways keep, as in `blueprint/sql/functions/config_rows.sql`.
SERVED_VERSIONS = 5
BYTES_PER_TOKEN = prompts.BYTES_PER_TOKEN
SCHEMA_WORDS_MAX = 200


def model_list(*, enabled_only: bool = False, removed: bool = False) -> list[Model]:
    """By name; `removed`: those too that are there no more, but in what was."""
    rows = Model.objects.order_by("name")
    rows = rows if removed else rows.filter(removed_at=None)
    return list(rows.filter(enabled=True) if enabled_only else rows)


def models_unknown(names: Iterable[str]) -> list[str]:
    wanted = set(names)
    known = Model.objects.filter(name__in=wanted, removed_at=None).values_list("name", flat=True)
    return sorted(wanted.difference(known))


def model_find(*, name: str) -> Model | None:
    return Model.objects.filter(name=name, removed_at=None).first()


def pool_list() -> list[Pool]:
    return list(Pool.objects.order_by("name"))


def pool_find(*, name: str) -> Pool | None:
    return Pool.objects.filter(name=name).first()


def price_list(*, model: Model) -> list[PriceVersion]:
    """Versions that all pay, and those of single projects of the open scope; newest first."""
    return list(PriceVersion.objects.filter(model=model).order_by("-version"))


def price_list_all(*, actor: Actor, model: Model) -> list[PriceVersion]:
    """All versions, those of every tenant's projects too, newest first; for staff."""
    require(actor, Action.CATALOG_MANAGE)
    query = "SELECT * FROM price_versions_of(%s) ORDER BY version DESC"
    return list(PriceVersion.objects.raw(query, [model.id]))


def price_find(*, model: str, version: int, organization_id: uuid.UUID) -> PriceVersion | None:
    """One version of the prices of the model of that name, as the organization may see it."""
    with organization_scope([organization_id]):
        return PriceVersion.objects.filter(model__name=model, version=version).first()


def price_in_force(*, model: Model, at: datetime) -> Price | None:
    """What all pay: the version that took effect last; of two at the same moment the later one."""
    row = (
        PriceVersion.objects.filter(model=model, project=None, effective_from__lte=at)
        .order_by("-effective_from", "-version")
        .first()
    )
    return None if row is None else msgspec.convert(row, Price, from_attributes=True)


def prices_in_force(*, at: datetime) -> dict[uuid.UUID, PriceVersion]:
    """What all pay for each model, by the model's id; models without a price are left out."""
    rows = PriceVersion.objects.filter(project=None, effective_from__lte=at)
    rows = rows.order_by("model_id", "-effective_from", "-version").distinct("model_id")
    return {row.model_id: row for row in rows}


def version_in_force(
    versions: Iterable[PriceVersion], *, project_id: uuid.UUID | None, at: datetime
) -> PriceVersion | None:
    """Of a model's versions what the project pays instead of the others, or without one what all
    pay; None where that is not there or has ended.
    """
    begun = [one for one in versions if one.project_id == project_id and one.effective_from <= at]
    last = max(begun, key=lambda one: (one.effective_from, one.version), default=None)
    ended = last is not None and last.effective_until is not None and last.effective_until <= at
    return None if ended else last


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A template with the numbers of what is in force, in canary and newest."""

    template: PromptTemplate
    published: int | None
    canary: int | None
    newest: int | None


class PromptDryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a request with these variables would send, and how much of it caches; of a tool, how
    much it adds to each request.

    Tokens are estimates at four bytes each: the count is the model's tokenizer's.
    """

    messages: tuple[prompts.PromptMessage, ...]
    bytes: int
    tokens: int
    stable_bytes: int
    stable_tokens: int
    problems: list[prompts.PromptProblem]


def prompt_list(*, actor: Actor, organization_id: uuid.UUID) -> list[Listed]:
    with permitted(actor, Action.TEMPLATE_VIEW, organization_id):
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
    with permitted(actor, Action.TEMPLATE_VIEW, organization_id):
        rows = PromptTemplate.objects.select_related("project", "organization")
        return rows.get(organization_id=organization_id, name=name)


def prompt_versions(*, actor: Actor, template: PromptTemplate) -> list[PromptVersion]:
    with permitted(actor, Action.TEMPLATE_VIEW, template.organization_id):
        rows = PromptVersion.objects.filter(template=template)
        rows = rows.select_related("created_by", "copy_of").order_by("-version")
        return list(rows[:VERSIONS_SHOWN_MAX])


def prompt_version_get(*, actor: Actor, template: PromptTemplate, version: int) -> PromptVersion:
    with permitted(actor, Action.TEMPLATE_VIEW, template.organization_id):
        rows = PromptVersion.objects.select_related("created_by", "copy_of", "template")
        return rows.get(template=template, version=version)


def body_of(version: PromptVersion) -> prompts.PromptBody:
    return msgspec.convert(version.body, prompts.PromptBody)


def prompt_problems(version: PromptVersion) -> list[prompts.PromptProblem]:
    """What is wrong with a version, held against what is stored and served now; needs the scope."""
    body = body_of(version)
    found = prompts.find_problems(body)
    parameters = body.tool and body.tool.parameters
    form = body.response_format or {}
    for field, schema in (
        ("tool.parameters", parameters),
        ("response_format.json_schema.schema", (form.get("json_schema") or {}).get("schema")),
    ):
        if schema is not None and (told := _schema_complaint(schema)):
            found.append(prompts.PromptProblem(field, told))
    if body.model and model_find(name=body.model) is None:
        told = "Is no model's name; rules may lead on from it."
        found.append(prompts.PromptProblem("model", told, warning=True))
    tools = PromptVersion.objects.filter(organization_id=version.organization_id)
    tools = tools.exclude(published_at=None).filter(body__has_key="tool")
    visible = Q(template__project=None) | Q(template__project=version.template.project_id)
    for place, tool in enumerate(body.tools):
        wanted = Q(version=tool.version) if tool.version else Q(state=State.PUBLISHED)
        if not tools.filter(visible, wanted, template__name=tool.id).exists():
            told = f"There is no published tool {tool.id!r} of this version."
            found.append(prompts.PromptProblem(f"tools[{place}]", told))
    return found


def _schema_complaint(schema: object) -> str:
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"Is no JSON schema: {error.message[:SCHEMA_WORDS_MAX]}"
    return ""


def prompt_dry_run(body: prompts.PromptBody, values: dict[str, prompts.Value]) -> PromptDryRun:
    """Render with these variables; raises `BadValue`."""
    checked = prompts.checked_values(body, values)
    stable = sum(len(message.content.encode()) for message in prompts.stable_messages(body))
    size = prompts.filled_bytes(body, checked) + (prompts.tool_bytes(body.tool) if body.tool else 0)
    return PromptDryRun(
        messages=prompts.filled(body, checked),
        bytes=size,
        tokens=_tokens(size),
        stable_bytes=stable,
        stable_tokens=_tokens(stable),
        problems=prompts.find_problems(body),
    )


def sample_values(body: prompts.PromptBody) -> dict[str, prompts.Value]:
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


def _sample(variable: prompts.Variable) -> prompts.Value:
    if variable.default is not None:
        return variable.default
    if variable.type == "integer":
        return min(max(0, variable.least), variable.most)
    if variable.type == "choice":
        return variable.choices[0] if variable.choices else ""
    return f"<{variable.name}>"[: variable.chars_max]
