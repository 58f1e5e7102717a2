"""Changes of objectives and of who learns of them, each audited and marked on the burn-down."""

import uuid
from dataclasses import asdict
from typing import Any

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.mail import NOT_EMAIL, is_email
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from controlplane.kernel.spans import STAGES
from controlplane.slos.access import changing
from controlplane.slos.changes import change_words
from controlplane.slos.channels.addresses import EMAIL, address_kept
from controlplane.slos.channels.delivery import address_check
from controlplane.slos.checks import Complaints, ObjectiveDraft, draft_check, owner_check, rules_of
from controlplane.slos.models import (
    ADDRESS_CHARS_MAX,
    EVERYONE,
    Change,
    Channel,
    Objective,
    StageOwner,
)
from controlplane.slos.runbooks import runbook_of
from controlplane.tenants.access import require
from controlplane.tenants.models import Project

OBJECTIVES_MAX = 50
CHANNELS_MAX = 10
# A change of one of these makes other requests count, or count otherwise: a new version.
COUNTED_BY = ("threshold", "route", "model", "project", "prompt_bucket")
STAGE_NAMES = tuple(name for name, _, _ in STAGES)


def objective_create(*, actor: Actor, organization: uuid.UUID, draft: ObjectiveDraft) -> Objective:
    """A new objective; gateways count for it within two seconds."""
    with changing(actor, organization):
        draft_check(organization, draft)
        _check_project(organization, draft)
        living = Objective.objects.filter(organization=organization, ended_at=None)
        if living.count() >= OBJECTIVES_MAX:
            raise ValidationError({"name": f"At most {OBJECTIVES_MAX} objectives; end one first."})
        made = Objective(organization=organization)
        _take(made, draft)
        _save(made)
        _mark(made, "made")
        _audit(actor, "objective.create", made, after=_facts(made))
    return made


def objective_update(*, actor: Actor, objective: Objective, draft: ObjectiveDraft) -> Objective:
    """Another promise under the same name; a new threshold or scope counts again, as a version."""
    with changing(actor, objective.organization):
        draft_check(objective.organization, draft)
        _check_project(objective.organization, draft)
        now = _living(objective.id)
        if draft.indicator != now.indicator:
            raise ValidationError({"indicator": "Cannot be changed; create a new objective."})
        before = _facts(now)
        counted = [getattr(now, name) for name in COUNTED_BY]
        _take(now, draft)
        if counted != [getattr(now, name) for name in COUNTED_BY]:
            now.version += 1
        _save(now)
        after = _facts(now)
        changed = [name for name in after if before[name] != after[name]]
        if changed:
            told = (change_words(now, name, before[name], after[name]) for name in changed)
            _mark(now, ", ".join(told)[:ADDRESS_CHARS_MAX])
        _audit(actor, "objective.update", now, before=before, after=after)
    return now


def objective_end(*, actor: Actor, objective: Objective) -> None:
    """Counts and history stay readable until they are old; its alerts recover."""
    with changing(actor, objective.organization):
        now = _living(objective.id)
        now.ended_at, now.enabled = timezone.now(), False
        now.save(update_fields=["ended_at", "enabled"])
        _audit(actor, "objective.end", now)


def channel_add(*, actor: Actor, organization: uuid.UUID, kind: str, address: str) -> Channel:
    """Tell an address of every alert of the organization from now on."""
    with changing(actor, organization):
        _check_address(kind, address)
        if Channel.objects.filter(organization=organization).count() >= CHANNELS_MAX:
            raise ValidationError({"address": f"At most {CHANNELS_MAX} channels; remove one."})
        try:
            made = Channel(organization=organization, kind=kind)
            kept = address_kept(made.id, organization, kind, address)
            made.sealed, made.digest, made.shown = kept
            with transaction.atomic():
                made.save(force_insert=True)
        except IntegrityError as error:
            raise ValidationError({"address": "This channel already exists."}) from error
        audit_record(
            actor,
            "slo_channel.add",
            subject=made,
            organization_id=_tenant(organization),
            detail={"kind": kind},
        )
    return made


def channel_remove(*, actor: Actor, organization: uuid.UUID, channel_id: uuid.UUID) -> None:
    """No more messages there; those that wait are dropped."""
    with changing(actor, organization):
        found = Channel.objects.get(id=channel_id, organization=organization)
        audit_record(
            actor,
            "slo_channel.remove",
            subject=found,
            organization_id=_tenant(organization),
            detail={"kind": found.kind},
        )
        found.delete()


def stage_owner_set(
    *, actor: Actor, stage: str, team: str, email: str, budget_us: int, runbook: str
) -> StageOwner:
    """Who answers for a stage, and within how many microseconds at p95."""
    require(actor, Action.SLO_INSTALLATION)
    if stage not in STAGE_NAMES:
        raise ObjectDoesNotExist("stage")
    wrong = Complaints()
    owner_check(team, email, runbook, wrong)
    wrong.unless(1 <= budget_us <= 3_600_000_000, "budget_us", "1 to 3,600,000,000 microseconds.")
    wrong.raise_any()
    with transaction.atomic():
        now, _ = StageOwner.objects.update_or_create(
            stage=stage,
            defaults={"team": team, "email": email, "budget_us": budget_us, "runbook": runbook},
        )
        audit_record(
            actor,
            "stage_owner.set",
            subject=now,
            organization_id=None,
            detail={"stage": stage, "team": team, "budget_us": budget_us},
        )
    return now


def _living(objective_id: uuid.UUID) -> Objective:
    return Objective.objects.select_for_update().get(id=objective_id, ended_at=None)


def _take(objective: Objective, draft: ObjectiveDraft) -> None:
    for name, value in asdict(draft).items():
        setattr(objective, name, value)
    objective.rules = rules_of(draft)
    objective.runbook = draft.runbook or runbook_of(draft.indicator)


def _save(objective: Objective) -> None:
    try:
        with transaction.atomic():
            objective.save()
    except IntegrityError as error:
        raise ValidationError({"name": "An objective with this name already exists."}) from error


def _check_project(organization: uuid.UUID, draft: ObjectiveDraft) -> None:
    if draft.project is None:
        return
    if not Project.objects.filter(id=draft.project, organization_id=organization).exists():
        raise ValidationError({"project": "Project not found in this organization."})


def _check_address(kind: str, address: str) -> None:
    if kind != EMAIL:
        address_check(kind, address)
    elif not is_email(address):
        raise ValidationError({"address": NOT_EMAIL})


def _mark(objective: Objective, text: str) -> None:
    Change.objects.create(
        organization=objective.organization,
        objective=objective,
        version=objective.version,
        text=text,
    )


def _facts(objective: Objective) -> Facts:
    names = ObjectiveDraft.__dataclass_fields__
    return {name: _fact(getattr(objective, name)) for name in names}


def _fact(value: Any) -> str | int | bool | list[str] | None:
    return public_id("proj", value) if isinstance(value, uuid.UUID) else value


def _tenant(organization: uuid.UUID) -> uuid.UUID | None:
    return None if organization == EVERYONE else organization


def _audit(
    actor: Actor,
    action: str,
    objective: Objective,
    *,
    before: Facts | None = None,
    after: Facts | None = None,
) -> None:
    audit_record(
        actor,
        action,
        subject=objective,
        organization_id=_tenant(objective.organization),
        detail={"name": objective.name, "version": objective.version},
        changed=None if after is None else (before or {}, after),
    )
