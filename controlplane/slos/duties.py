"""Who has which duty of a stage: telemetry, limits, routing, index; handed over on a date.

A duty that nobody has is its stage's owner's.
"""

from collections.abc import Iterable
from datetime import date
from typing import NamedTuple

import msgspec
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import transaction
from django.utils import timezone

from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.mail import NOT_EMAIL, is_email
from controlplane.core.permissions import Action
from controlplane.kernel.measures import STAGE_NAMES
from controlplane.kernel.objectives import counting
from controlplane.slos.models import NAME_CHARS_MAX, NOBODY, Duty, DutyOwner, StageOwner
from controlplane.tenants.access import require

HAND_OVERS_MAX = 20
# Whose stage an indicator is of, beside those that name theirs.
_STAGES = {
    counting.TTFT: "s5_infer",
    counting.INTER_TOKEN: "s5_infer",
    counting.CACHE_HIT: "s4_route",
    counting.BILLING: "s7_bill",
}


class DutyNow(NamedTuple):
    """Who has a duty now, and who is to have it; `team` is blank where it is the stage owner's."""

    duty: str
    team: str
    email: str
    next: DutyOwner | None


class DutyBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who has a duty from a day on (UTC); a blank team gives it to the stage's owner."""

    team: str
    begins: date
    email: str = ""


def duty_hand_over(*, actor: Actor, stage: str, duty: str, to: DutyBody) -> DutyOwner:
    """From that day on the team has the duty; a blank one gives it to the stage's owner."""
    require(actor, Action.SLO_INSTALLATION)
    if stage not in STAGE_NAMES:
        raise ObjectDoesNotExist("stage")
    if duty not in Duty.values:
        raise ValidationError({"duty": f"Must be one of {', '.join(Duty.values)}."})
    team, begins = to.team, to.begins
    if len(team) > NAME_CHARS_MAX:
        raise ValidationError({"team": f"At most {NAME_CHARS_MAX} characters."})
    if to.email and not is_email(to.email):
        raise ValidationError({"email": NOT_EMAIL})
    today = timezone.now().date()
    if begins < today:
        raise ValidationError({"begins": "Must be today or later."})
    with transaction.atomic():
        ahead = DutyOwner.objects.filter(stage=stage, duty=duty, begins__gt=today)
        if ahead.exclude(begins=begins).count() >= HAND_OVERS_MAX:
            raise ValidationError({"begins": f"At most {HAND_OVERS_MAX} hand-overs ahead."})
        made, _ = DutyOwner.objects.update_or_create(
            stage=stage, duty=duty, begins=begins, defaults={"team": team, "email": to.email}
        )
        audit_record(
            actor,
            "stage_duty.hand_over",
            subject=made,
            detail={"stage": stage, "duty": duty, "team": team, "begins": begins.isoformat()},
        )
    return made


def duties_now(today: date | None = None) -> dict[str, list[DutyNow]]:
    """Every duty of every stage, in their order."""
    day = today or timezone.now().date()
    now: dict[tuple[str, str], DutyOwner] = {}
    ahead: dict[tuple[str, str], DutyOwner] = {}
    for one in DutyOwner.objects.order_by("begins"):
        place = one.stage, one.duty
        if one.begins <= day:
            now[place] = one
        else:
            ahead.setdefault(place, one)
    return {
        stage: [
            _now(duty, now.get((stage, duty)), ahead.get((stage, duty))) for duty in Duty.values
        ]
        for stage in STAGE_NAMES
    }


def _now(duty: str, one: DutyOwner | None, ahead: DutyOwner | None) -> DutyNow:
    return DutyNow(duty, one.team if one else "", one.email if one else "", ahead)


def stage_of(indicator: str) -> str:
    """The stage that an indicator is of, or is; empty for one of the whole request."""
    name = indicator.removeprefix(counting.STAGE)
    return name if name in STAGE_NAMES else _STAGES.get(indicator, "")


def owners_of(indicators: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Who answers for the stage of each indicator and for its duties, as far as that is said."""
    stages = {indicator: stage_of(indicator) for indicator in indicators}
    wanted = set(filter(None, stages.values()))
    owners = {one.stage: one for one in StageOwner.objects.filter(stage__in=wanted)}
    duties = duties_now() if wanted else {}
    told: dict[str, list[tuple[str, str]]] = {"": []}
    for stage in wanted:
        owner = owners.get(stage)
        named = owner is not None and owner.team != NOBODY
        found = [(f"stage {stage}", owner.team, owner.email)] if owner and named else []
        found += [(f"{one.duty} of {stage}", one.team, one.email) for one in duties[stage]]
        told[stage] = [(what, f"{team} {email}".strip()) for what, team, email in found if team]
    return {indicator: told[stage] for indicator, stage in stages.items()}


def indicator_owners(indicator: str) -> list[tuple[str, str]]:
    """The same of one."""
    return owners_of([indicator])[indicator]
