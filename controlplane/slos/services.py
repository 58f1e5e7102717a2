"""Changes of objectives and of who learns of them, each audited and marked on the burn-down;
members see and change their organization's, staff the installation's.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.mail import NOT_EMAIL, is_email
from controlplane.core.permissions import Action, organization_scope
from controlplane.kernel.ids import public_id
from controlplane.kernel.measures import STAGE_NAMES
from controlplane.kernel.objectives.burn import MILLION
from controlplane.kernel.objectives.counting import CACHE_HIT
from controlplane.slos.channels.delivery import EMAIL, address_check, address_kept, address_of
from controlplane.slos.checks import (
    THRESHOLD_US_MAX,
    Complaints,
    ObjectiveDraft,
    StageBody,
    draft_check,
    owner_check,
    rules_of,
)
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

PERCENT_PPM = MILLION / 100
US_PER_MS = 1_000
_NAMES = {
    "target_ppm": "target",
    "period_days": "days",
    "absent_after_min": "minutes without data",
    "prompt_bucket": "prompt length",
    "shed_priority": "shed priority",
    "shift_version": "rules to shift to",
}


@contextmanager
def seeing(
    actor: Actor, organization: uuid.UUID, action: Action = Action.SLO_VIEW
) -> Iterator[None]:
    """The organization's scope, for who may look; `changing` is for who may change objectives."""
    if organization == EVERYONE:
        require(actor, Action.SLO_INSTALLATION)
    else:
        require(actor, action, organization)
    with organization_scope([organization]):
        yield


changing = partial(seeing, action=Action.SLO_MANAGE)


def change_words(objective: Objective, name: str, before: object, after: object) -> str:
    """`target 99 % to 99.5 %`: the field, and both values in the units of the pages."""
    values = (_said(objective, name, value) for value in (before, after))
    return f"{_NAMES.get(name, name)} {' to '.join(values)}"


def _said(objective: Objective, name: str, value: object) -> str:
    if isinstance(value, list):
        return "+".join(value) or "none"
    if isinstance(value, int) and name == "target_ppm":
        return f"{value / PERCENT_PPM:g} %"
    if isinstance(value, int) and name == "threshold":
        cached = objective.indicator == CACHE_HIT
        return f"{value / PERCENT_PPM:g} %" if cached else f"{value / US_PER_MS:g} ms"
    return "none" if value in (None, "") else str(value)


OBJECTIVES_MAX = 50
CHANNELS_MAX = 10
# A change of one of these makes other requests count, or count otherwise: a new version.
COUNTED_BY = ("threshold", "route", "model", "project", "pool", "region", "prompt_bucket", "parts")


def objective_create(*, actor: Actor, organization: uuid.UUID, draft: ObjectiveDraft) -> Objective:
    with changing(actor, organization):
        draft_check(organization, draft)
        _check_project(organization, draft)
        living = Objective.objects.filter(organization=organization, ended_at=None)
        if living.count() >= OBJECTIVES_MAX:
            raise ValidationError({"name": f"At most {OBJECTIVES_MAX} objectives; end one first."})
        made = Objective(organization=organization)
        _take(made, draft)
        _save(made)
        _mark(made, "objective created")
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
        if kind != EMAIL:
            address_check(kind, address)
        elif not is_email(address):
            raise ValidationError({"address": NOT_EMAIL})
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
        audit_record(actor, "slo_channel.add", subject=made, detail={"kind": made.kind})
    return made


def channel_remove(*, actor: Actor, organization: uuid.UUID, channel_id: uuid.UUID) -> None:
    """No more messages there; those that wait are dropped."""
    with changing(actor, organization):
        found = Channel.objects.get(id=channel_id, organization=organization)
        audit_record(actor, "slo_channel.remove", subject=found, detail={"kind": found.kind})
        found.delete()


def channels_reseal(organization: uuid.UUID) -> int:
    """Keep the addresses of an organization's channels under the present key; how many there are.

    Their digests, which tell two addresses apart, are made anew, too.
    """
    with organization_scope([organization]):
        found = list(Channel.objects.select_for_update().filter(organization=organization))
        for each in found:
            address = address_of(each.id, organization, bytes(each.sealed))
            kept = address_kept(each.id, organization, each.kind, address)
            each.sealed, each.digest, each.shown = kept
            each.save(update_fields=["sealed", "digest"])
    return len(found)


def stage_owner_set(*, actor: Actor, stage: str, owner: StageBody) -> StageOwner:
    """Who answers for a stage, and within how many microseconds at p95."""
    require(actor, Action.SLO_INSTALLATION)
    if stage not in STAGE_NAMES:
        raise ObjectDoesNotExist("stage")
    wrong = Complaints()
    owner_check(owner.team, owner.email, owner.runbook, wrong)
    right = 1 <= owner.budget_us <= THRESHOLD_US_MAX
    wrong.unless(right, "budget_us", f"1 to {THRESHOLD_US_MAX:,} microseconds.")
    wrong.raise_any()
    with transaction.atomic():
        now, _ = StageOwner.objects.update_or_create(
            stage=stage, defaults={**msgspec.structs.asdict(owner), "learned_from": 0}
        )
        facts: Facts = {"stage": stage, "team": owner.team, "budget_us": owner.budget_us}
        audit_record(actor, "stage_owner.set", subject=now, detail=facts)
    return now


def _living(objective_id: uuid.UUID) -> Objective:
    return Objective.objects.select_for_update().get(id=objective_id, ended_at=None)


def _take(objective: Objective, draft: ObjectiveDraft) -> None:
    for name, value in msgspec.structs.asdict(draft).items():
        setattr(objective, name, value)
    objective.parts = [msgspec.to_builtins(part) for part in draft.parts]
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


def _mark(objective: Objective, text: str) -> None:
    Change.objects.create(
        organization=objective.organization,
        objective=objective,
        version=objective.version,
        text=text,
    )


def _facts(objective: Objective) -> Facts:
    facts = {name: getattr(objective, name) for name in ObjectiveDraft.__struct_fields__}
    facts["parts"] = [f"{part['indicator']} {part['threshold']}" for part in objective.parts]
    return {**facts, "project": objective.project and public_id("proj", objective.project)}


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
        detail={"name": objective.name, "version": objective.version},
        changed=None if after is None else (before or {}, after),
    )
