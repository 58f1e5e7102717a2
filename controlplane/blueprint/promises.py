"""Objectives and owners of stages in a document: what they are now, and how they are changed."""

import uuid

import msgspec
from django.core.exceptions import ValidationError
from django.utils import timezone

from controlplane.blueprint import things
from controlplane.blueprint.applying import Applying
from controlplane.blueprint.tenants import organization_of
from controlplane.core.api.shapes import read_shape
from controlplane.core.audit.entries import Actor
from controlplane.kernel.measures import STAGE_NAMES
from controlplane.slos.checks import ObjectiveDraft, StageBody
from controlplane.slos.duties import DutyBody, duties_now, duty_hand_over
from controlplane.slos.models import EVERYONE, NOBODY, Objective
from controlplane.slos.selectors import objectives_living, stage_owners
from controlplane.slos.services import (
    objective_create,
    objective_end,
    objective_update,
    stage_owner_set,
)
from controlplane.tenants.models import Organization
from controlplane.tenants.selectors import project_named, projects_of

_OWNER = ("team", "email", "budget_us", "runbook")
# Of a draft's fields those that a document calls otherwise, or has elsewhere.
_RULES, _ALERT_RULES = "rules", "alert_rules"
_PLAIN = tuple(
    name for name in ObjectiveDraft.__struct_fields__ if name not in ("name", "project", _RULES)
)


def stages_now() -> dict[things.Key, things.Fields]:
    """Those that somebody answers for; a budget that was learned is not configured."""
    found: dict[things.Key, things.Fields] = {}
    duties = duties_now()
    for stage, owner in stage_owners().items():
        names = _OWNER if not owner.learned_from else _OWNER[:2] + _OWNER[3:]
        fields: things.Fields = {
            one.duty: {"team": one.team} | ({"email": one.email} if one.email else {})
            for one in duties[stage]
            if one.team
        }
        taken = owner.team != NOBODY
        if taken or fields:
            owned = {name: getattr(owner, name) for name in names} if taken else {}
            found[(things.STAGE, stage)] = {**owned, "duties": fields}
    return found


def stage_step(step: Applying) -> None:
    stage = step.key[-1]
    if stage not in STAGE_NAMES:
        raise ValidationError({"stage": f"Must be one of {', '.join(STAGE_NAMES)}."})
    if step.changed(*_OWNER):
        now = stage_owners()[stage]
        owned = {name: step.after.get(name, getattr(now, name)) for name in _OWNER}
        stage_owner_set(actor=step.actor, stage=stage, owner=StageBody(**owned))
    before, after = (step.before or {}).get("duties", {}), step.after.get("duties", {})
    for duty in sorted(before.keys() | after.keys()):
        if before.get(duty) != after.get(duty):
            to = {"team": "", "begins": timezone.now().date(), **after.get(duty, {})}
            with things.below(f"duties.{duty}"):
                duty_hand_over(actor=step.actor, stage=stage, duty=duty, to=DutyBody(**to))


def objectives_now(
    actor: Actor, organization: Organization | None
) -> dict[things.Key, things.Fields]:
    """Of an organization, or those of the installation."""
    where, named = EVERYONE, things.INSTALLATION
    names: dict[uuid.UUID, str] = {}
    if organization is not None:
        where, named = organization.id, organization.name
        names = {project.id: project.name for project in projects_of(organization)}
    return {
        (things.OBJECTIVE, named, one.name): {
            **{name: getattr(one, name) for name in _PLAIN},
            "project": names.get(one.project) if one.project else None,
            _ALERT_RULES: one.rules,
        }
        for one in objectives_living(actor=actor, organization=where)
    }


def objective_step(step: Applying) -> None:
    where, found = _objective(step)
    _, named, name = step.key
    fields = {**step.after, "name": name}
    if _ALERT_RULES in fields:
        fields[_RULES] = fields.pop(_ALERT_RULES)
    wanted, project = fields.pop("project", None), None
    if wanted:
        known = project_named(organization_of(named), name=wanted) if named else None
        if known is None:
            raise ValidationError({"project": f"Project {wanted!r} not found."})
        project = known.id
    draft = msgspec.structs.replace(read_shape(fields, ObjectiveDraft, field=""), project=project)
    if found is None:
        objective_create(actor=step.actor, organization=where, draft=draft)
    else:
        objective_update(actor=step.actor, objective=found, draft=draft)


def objective_absent(step: Applying) -> None:
    _, found = _objective(step)
    assert found is not None
    objective_end(actor=step.actor, objective=found)


def _objective(step: Applying) -> tuple[uuid.UUID, Objective | None]:
    _, named, name = step.key
    where = organization_of(named).id if named else EVERYONE
    living = objectives_living(actor=step.actor, organization=where)
    return where, next((one for one in living if one.name == name), None)
