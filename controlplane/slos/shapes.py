"""The forms of what the API says of objectives and of who owns stages."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import TypedDict
from uuid import UUID

import msgspec

from controlplane.core.answers import answer_of
from controlplane.kernel.ids import AlertId, ChannelId, DeliveryId, ObjectiveId, ProjectId
from controlplane.kernel.objectives.burn import Count
from controlplane.kernel.objectives.counting import IndicatorPart
from controlplane.slos.channels.delivery import signing_secret
from controlplane.slos.duties import DutyNow, duties_now
from controlplane.slos.models import (
    Alert,
    Channel,
    Delivery,
    Objective,
    Shed,
    Silence,
    StageOwner,
)
from controlplane.slos.runbooks import runbook_path
from controlplane.slos.standings import SHOWN_MIN, ObjectiveStatus

EXAMPLE = {
    "name": "first token",
    "indicator": "ttft",
    "threshold": 500_000,
    "target_ppm": 990_000,
    "team": "platform",
    "email": "platform@example.org",
}


class ChannelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Where alerts are told; `kind` is webhook, slack, teams, pagerduty, opsgenie or email."""

    kind: str
    address: str


class AssigneeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The e-mail of a member who takes care of an alert; empty for nobody."""

    email: str


class SilenceBody(msgspec.Struct, forbid_unknown_fields=True):
    """For how many minutes from now nobody is told of new alerts; 0 ends a silence."""

    minutes: int
    reason: str = ""


class OpenSloBody(msgspec.Struct, forbid_unknown_fields=True):
    """OpenSLO v1 as YAML, one SLO in each document."""

    yaml: str


class AlertJson(TypedDict):
    """A time in which an objective was in danger; burn rates are those at its beginning."""

    id: AlertId
    object: str
    objective: ObjectiveId
    severity: str
    rule: str
    state: str
    since: datetime
    recovered_at: datetime | None
    burn_long: float | None
    burn_short: float | None
    acts: list[str]
    muted: bool
    acknowledged_at: datetime | None
    acknowledged_by: str
    assignee: str


class PromiseJson(TypedDict):
    """What an objective says."""

    name: str
    indicator: str
    target_ppm: int
    team: str
    threshold: int
    period_days: int
    route: str
    model: str
    project: ProjectId | None
    pool: str
    region: str
    prompt_bucket: int
    parts: list[IndicatorPart]
    rules: list[str]
    absent_after_min: int
    email: str
    runbook: str
    enabled: bool
    shed_priority: int | None
    stop_canary: bool
    shift_version: int | None
    id: ObjectiveId
    object: str
    version: int


class KeptOutJson(TypedDict):
    """Since when a priority is shed, until when at least, and until when without a renewal."""

    since: datetime
    least_until: datetime
    lease_until: datetime


class ObjectiveJson(PromiseJson):
    """An objective and how it stands; `burn_rates` by window in minutes, None without requests."""

    state: str
    good: int
    total: int
    attained: float | None
    budget_left: float | None
    burn_rates: dict[str, float | None]
    exhausted_in_s: float | None
    kept_out: KeptOutJson | None
    alerts: list[AlertJson]


class ChannelJson(TypedDict):
    """Where alerts are told; of an address only host and end, and `secret` signs what it gets."""

    id: ChannelId
    object: str
    kind: str
    address: str
    secret: str | None


class SilenceJson(TypedDict):
    """Until when nobody is told of new alerts of an objective; None where somebody is."""

    object: str
    objective: ObjectiveId
    until: datetime | None
    by: str
    reason: str


class DeliveryJson(TypedDict):
    """A message: what it was about, where it went, and what came of it."""

    id: DeliveryId
    object: str
    event: str
    alert: AlertId | None
    kind: str
    to: str
    created_at: datetime
    attempts: int
    sent_at: datetime | None
    error: str


class DutyJson(TypedDict):
    """Who has a duty of a stage, and who is to have it next."""

    duty: str
    team: str
    email: str
    next_team: str | None
    next_begins: date | None


class StageJson(TypedDict):
    """Who answers for a stage, and for its duties where that is somebody else."""

    stage: str
    object: str
    team: str
    email: str
    budget_us: int
    learned_from: int
    runbook: str
    duties: list[DutyJson]


def objective_json(standing: ObjectiveStatus) -> ObjectiveJson:
    return answer_of(
        ObjectiveJson,
        standing,
        **_promise(standing.objective),
        good=standing.period.good,
        total=standing.period.total,
        budget_left=standing.left,
        burn_rates={str(minutes): standing.burn(minutes) for minutes in SHOWN_MIN},
        kept_out=_shed_json(standing.shedding),
        alerts=[alert_json(alert) for alert in standing.alerts],
    )


def _shed_json(shed: Shed | None) -> KeptOutJson | None:
    if shed is None:
        return None
    return {"since": shed.since, "least_until": shed.least_until, "lease_until": shed.until}


def fresh_json(objective: Objective) -> ObjectiveJson:
    return objective_json(ObjectiveStatus(objective, {}, Count(), None, ()))


def _promise(objective: Objective) -> PromiseJson:
    runbook = runbook_path(objective.runbook)
    return answer_of(PromiseJson, objective, object="objective", runbook=runbook)


def alert_json(alert: Alert) -> AlertJson:
    objective, since = alert.objective_id, alert.created_at
    return answer_of(AlertJson, alert, object="slo_alert", objective=objective, since=since)


def channel_json(channel: Channel, *, secret: bool = False) -> ChannelJson:
    signs = secret and channel.kind == "webhook"
    return answer_of(
        ChannelJson,
        channel,
        object="slo_channel",
        address=channel.shown,
        secret=signing_secret(channel.id) if signs else None,
    )


def silence_json(objective: UUID, silence: Silence | None) -> SilenceJson:
    return answer_of(
        SilenceJson,
        silence,
        object="slo_silence",
        objective=objective,
        until=silence and silence.until,
        by=silence.by if silence else "",
        reason=silence.reason if silence else "",
    )


def delivery_json(delivery: Delivery) -> DeliveryJson:
    to = delivery.channel.shown if delivery.channel else delivery.address
    return answer_of(DeliveryJson, delivery, object="slo_delivery", alert=delivery.alert_id, to=to)


def stage_json(
    owner: StageOwner, all_duties: Mapping[str, list[DutyNow]] | None = None
) -> StageJson:
    """`all_duties` are those of every stage, where they were read already."""
    runbook = runbook_path(owner.runbook)
    duties = [duty_json(one) for one in (all_duties or duties_now())[owner.stage]]
    return answer_of(StageJson, owner, object="stage_owner", runbook=runbook, duties=duties)


def duty_json(duty: DutyNow) -> DutyJson:
    ahead = duty.next
    return {
        "duty": duty.duty,
        "team": duty.team,
        "email": duty.email,
        "next_team": ahead.team if ahead else None,
        "next_begins": ahead.begins if ahead else None,
    }
