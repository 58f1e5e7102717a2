"""Everything that changes organizations and projects, and tokens of the Playground."""

import uuid
from collections.abc import Iterable
from typing import Any

import msgspec
from django.conf import settings
from django.core.exceptions import ValidationError

from controlplane.core.api.shapes import read_shape
from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.permissions import Action, Role, organization_scope
from controlplane.kernel.clock import wall_s
from controlplane.kernel.keys.playtoken import LIFETIME_S, PlayGrant, sign_grant
from controlplane.kernel.policies.terms import Policies, complaints
from controlplane.tenants.access import require
from controlplane.tenants.models import (
    CACHE_MINUTES_MAX,
    LABEL_CHARS_MAX,
    LABELS_MAX,
    NAME_CHARS_MAX,
    WEIGHT_MAX,
    WEIGHT_MIN,
    ApiKey,
    Membership,
    Organization,
    Project,
    SafetyMode,
    User,
)
from controlplane.tenants.room import project_room
from controlplane.tenants.sign_in.accounts import member_links_end

ALLOWED_MODELS_MAX = 100
PLAYGROUND_BUDGETS_MAX = 8
REASON_CHARS_MAX = 200
# What other products take for all of them.
ANY = "*"
PROJECT_SETTINGS = (
    "safety_mode", "allow_content_logging", "strict", "labels", "cache_minutes", "cache_shared",
    "policies",
)  # fmt: skip


def organization_create(*, actor: Actor, name: str, owner: User, project: str = "") -> Organization:
    """A new organization with its first owner, and a first project where that is named."""
    require(actor, Action.ORGANIZATION_CREATE)
    made = Organization(name=clean_name(name))
    with organization_scope([made.id]):
        made.save(force_insert=True)
        Membership.objects.create(organization=made, user=owner, role=Role.OWNER.value)
        member_links_end(owner)
        facts: Facts = {"name": made.name, "owner": owner.email}
        audit_record(actor, "organization.create", subject=made, detail=facts)
        if project:
            _project_add(actor, Project(organization=made, name=clean_name(project)))
    return made


def project_create(*, actor: Actor, organization: Organization, name: str) -> Project:
    """A new project; its safety layer and content logging start off."""
    require(actor, Action.PROJECT_CREATE, organization.id)
    made = Project(organization=organization, name=clean_name(name))
    with organization_scope([organization.id]):
        _require_free(made, made.name)
        project_room(organization.id)
        _project_add(actor, made)
    return made


def _project_add(actor: Actor, project: Project) -> None:
    project.save(force_insert=True)
    audit_record(actor, "project.create", subject=project, detail={"name": project.name})


def project_rename(*, actor: Actor, project: Project, name: str) -> Project:
    """Another name; whatever was recorded keeps the project's id."""
    require(actor, Action.PROJECT_UPDATE, project.organization_id)
    name, before = clean_name(name), project.name
    with organization_scope([project.organization_id]):
        _require_free(project, name)
        return _project_change(actor, project, "project.rename", {"name": name}, before=before)


def project_update(*, actor: Actor, project: Project, **changes: Any) -> Project:
    """Set what a project decides about its requests, by the names of `PROJECT_SETTINGS`; what is
    left out keeps its value.
    """
    require(actor, Action.PROJECT_UPDATE, project.organization_id)
    wanted: dict[str, Any] = {name: getattr(project, name) for name in PROJECT_SETTINGS} | changes
    if wanted["safety_mode"] not in SafetyMode.values:
        raise ValidationError({"safety_mode": f"Must be one of {', '.join(SafetyMode.values)}."})
    if not 0 <= wanted["cache_minutes"] <= CACHE_MINUTES_MAX:
        told = f"Must be 0 (no limit) to {CACHE_MINUTES_MAX} minutes."
        raise ValidationError({"cache_minutes": told})
    wanted["labels"] = _label_names(wanted["labels"])
    wanted["policies"] = clean_policies(wanted["policies"])
    return _project_change(actor, project, "project.update", wanted)


def _label_names(given: Iterable[str]) -> list[str]:
    names = list(dict.fromkeys(given))
    fit = [0 < len(name) <= LABEL_CHARS_MAX and "\0" not in name for name in names]
    if len(names) > LABELS_MAX or not all(fit):
        told = f"At most {LABELS_MAX} names of 1 to {LABEL_CHARS_MAX} characters."
        raise ValidationError({"labels": told})
    return names


def clean_policies(given: object) -> dict[str, Any]:
    """Policies in their one form, without what demands nothing; raises ValidationError by path."""
    read = read_shape(given, Policies, field="policies")
    if wrong := complaints(read):
        raise ValidationError({f"policies.{path}": words for path, words in wrong.items()})
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(read))
    return made


def project_weigh(*, actor: Actor, project: Project, weight: int) -> Project:
    """Set a project's share where tenants compete for full nodes.

    Only for who runs the installation: what one tenant gains here, the others lose.
    """
    require(actor, Action.ROUTING_MANAGE)
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise ValidationError({"weight": f"Must be {WEIGHT_MIN} to {WEIGHT_MAX}."})
    return _project_change(actor, project, "project.weigh", {"weight": weight})


def _require_free(project: Project, name: str) -> None:
    """Raises ValidationError (`name`) for that of another project of the organization."""
    others = Project.objects.filter(organization_id=project.organization_id, name=name)
    if others.exclude(id=project.id).exists():
        raise ValidationError(
            {"name": "A project with this name already exists in this organization."}
        )


def _project_change(
    actor: Actor, project: Project, action: str, wanted: Facts, **more: str
) -> Project:
    before: Facts = {name: getattr(project, name) for name in wanted}
    with organization_scope([project.organization_id]):
        for name, value in wanted.items():
            setattr(project, name, value)
        project.save(update_fields=list(wanted))
        facts: Facts = {**wanted, **more}
        audit_record(actor, action, subject=project, detail=facts, changed=(before, wanted))
    return project


def playground_token_create(
    *,
    actor: User,
    project: Project,
    models: Iterable[str] | None = None,
    budgets: Iterable[uuid.UUID] = (),
) -> str:
    """A token for ten minutes of the Playground; it spends from `budgets` too, if named."""
    require(actor, Action.PLAYGROUND_USE, project.organization_id)
    named = _own_budgets(project.organization_id, list(budgets))
    allowed = clean_models(models)
    grant = PlayGrant(
        user=actor.id.hex,
        organization=project.organization_id.hex,
        project=project.id.hex,
        models=None if allowed is None else frozenset(allowed),
        budgets=tuple(one.hex for one in named),
        expires_at_s=wall_s() + LIFETIME_S,
    )
    return sign_grant(grant, settings.PLAYGROUND_TOKEN_KEY)


def _own_budgets(organization_id: uuid.UUID, named: list[uuid.UUID]) -> list[uuid.UUID]:
    # A budget has the id of what it limits; no one may spend from another organization's.
    if len(named) > PLAYGROUND_BUDGETS_MAX:
        raise ValidationError({"budgets": f"At most {PLAYGROUND_BUDGETS_MAX}."})
    with organization_scope([organization_id]):
        own = {
            organization_id,
            *Project.objects.filter(id__in=named).values_list("id", flat=True),
            *ApiKey.objects.filter(id__in=named).values_list("id", flat=True),
        }
    if not own.issuperset(named):
        raise ValidationError({"budgets": "All budgets must belong to the project's organization."})
    return named


def clean_name(text: str, *, field_name: str = "name") -> str:
    """A one-line name without surrounding space; raises ValidationError naming the field."""
    text = text.strip()
    if not 1 <= len(text) <= NAME_CHARS_MAX:
        raise ValidationError({field_name: f"Must have 1 to {NAME_CHARS_MAX} characters."})
    if not text.isprintable():
        raise ValidationError({field_name: "Must not contain control characters."})
    return text


def clean_models(models: Iterable[str] | None) -> list[str] | None:
    """An allow-list without repeats; raises ValidationError on one that allows nothing."""
    if models is None:
        return None
    wanted = sorted({clean_name(name, field_name="models") for name in models})
    if ANY in wanted:
        raise ValidationError(
            {"models": f"{ANY!r} is not a model name; leave the list empty to allow all."}
        )
    if not 1 <= len(wanted) <= ALLOWED_MODELS_MAX:
        raise ValidationError(
            {"models": f"Select 1 to {ALLOWED_MODELS_MAX} models, or none to allow all."}
        )
    return wanted
