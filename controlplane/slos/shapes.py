"""The forms of what the API says of objectives and of who owns stages."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, TypedDict, cast

import msgspec

from controlplane.kernel.burn import Count
from controlplane.kernel.objectives import ALL_BUCKETS
from controlplane.slos.channels import signing_secret
from controlplane.slos.checks import ObjectiveDraft
from controlplane.slos.models import Alert, Channel, Hold, Objective, StageOwner
from controlplane.slos.runbooks import runbook_path
from controlplane.slos.standings import SHOWN_MIN, Standing

EXAMPLE = {
    "name": "first token",
    "indicator": "ttft",
    "threshold": 500_000,
    "target_ppm": 990_000,
    "team": "platform",
    "email": "platform@example.org",
}


class ObjectiveBody(msgspec.Struct, forbid_unknown_fields=True):
    """A promise. `threshold` is in microseconds, of `cache_hit` in millionths, as is the target.

    Without `rules` it has every burn-rate rule that can fire at its target. The last three act
    while a page-worthy alert fires; only the installation's objectives may have them.
    """

    name: str
    indicator: str
    target_ppm: int
    team: str
    threshold: int = 0
    period_days: int = 30
    route: str = ""
    model: str = ""
    project: uuid.UUID | None = None
    prompt_bucket: int = ALL_BUCKETS
    rules: list[str] | None = None
    absent_after_min: int = 60
    email: str = ""
    runbook: str = ""
    enabled: bool = True
    shed_priority: int | None = None
    stop_canary: bool = False
    shift_version: int | None = None

    def draft(self) -> ObjectiveDraft:
        """The same for the services."""
        fields = msgspec.structs.asdict(self)
        return ObjectiveDraft(
            **{**fields, "rules": None if self.rules is None else tuple(self.rules)}
        )


class ChannelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Where alerts are told; `kind` is webhook, slack or email."""

    kind: str
    address: str


class OpenSloBody(msgspec.Struct, forbid_unknown_fields=True):
    """OpenSLO v1 as YAML, one SLO in each document."""

    yaml: str


class StageBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who answers for a stage, within how many microseconds at p95, and by which runbook."""

    team: str
    budget_us: int
    runbook: str
    email: str = ""


class AlertJson(TypedDict):
    """A time in which an objective was in danger; burn rates are those at its beginning."""

    id: str
    object: str
    objective: str
    severity: str
    rule: str
    state: str
    since: datetime
    recovered_at: datetime | None
    burn_long: float | None
    burn_short: float | None
    acts: list[str]


class AlertsJson(TypedDict):
    """The newest, newest first."""

    data: list[AlertJson]


class PromiseJson(TypedDict):
    """What an objective says."""

    id: str
    object: str
    name: str
    indicator: str
    threshold: int
    route: str
    model: str
    project: str | None
    prompt_bucket: int
    target_ppm: int
    period_days: int
    rules: list[str]
    absent_after_min: int
    team: str
    email: str
    runbook: str
    enabled: bool
    version: int
    shed_priority: int | None
    stop_canary: bool
    shift_version: int | None


class KeptOutJson(TypedDict):
    """Since when a priority is kept out, until when at least, and until when without a renewal."""

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


class ObjectivesJson(TypedDict):
    """Every living objective, by name."""

    data: list[ObjectiveJson]


class ChannelJson(TypedDict):
    """Where alerts are told; of an address only host and end, and `secret` signs what it gets."""

    id: str
    object: str
    kind: str
    address: str
    secret: str | None


class ChannelsJson(TypedDict):
    """All of them, oldest first; without secrets."""

    data: list[ChannelJson]


class OpenSloJson(TypedDict):
    """OpenSLO v1 as YAML."""

    yaml: str


class ImportedJson(TypedDict):
    """How many objectives were made, and how many changed."""

    made: int
    updated: int


class StageJson(TypedDict):
    """Who answers for a stage."""

    stage: str
    object: str
    team: str
    email: str
    budget_us: int
    runbook: str


class StagesJson(TypedDict):
    """All seven, in their order."""

    data: list[StageJson]


def objective_json(standing: Standing) -> ObjectiveJson:
    """An objective with its figures."""
    objective, period = standing.objective, standing.period
    return {
        **_promise(objective),
        "state": standing.state,
        "good": period.good,
        "total": period.total,
        "attained": standing.attained,
        "budget_left": standing.left,
        "burn_rates": {str(minutes): standing.burn(minutes) for minutes in SHOWN_MIN},
        "exhausted_in_s": standing.exhausted_in_s,
        "kept_out": _kept_out(standing.kept_out),
        "alerts": [alert_json(alert) for alert in standing.alerts],
    }


def _kept_out(hold: Hold | None) -> KeptOutJson | None:
    if hold is None:
        return None
    return {"since": hold.since, "least_until": hold.least_until, "lease_until": hold.until}


def fresh_json(objective: Objective) -> ObjectiveJson:
    """An objective that was changed just now."""
    return objective_json(Standing(objective, {}, Count(), None, ()))


def _promise(objective: Objective) -> PromiseJson:
    names = ObjectiveDraft.__dataclass_fields__
    fields: dict[str, Any] = {name: getattr(objective, name) for name in names}
    fields |= {
        "id": str(objective.id),
        "object": "objective",
        "project": str(objective.project) if objective.project else None,
        "runbook": runbook_path(objective.runbook),
        "version": objective.version,
    }
    return cast(PromiseJson, fields)


def alert_json(alert: Alert) -> AlertJson:
    """An alert for programs."""
    return {
        "id": str(alert.id),
        "object": "slo_alert",
        "objective": str(alert.objective_id),
        "severity": alert.severity,
        "rule": alert.rule,
        "state": alert.state,
        "since": alert.created_at,
        "recovered_at": alert.recovered_at,
        "burn_long": alert.burn_long,
        "burn_short": alert.burn_short,
        "acts": alert.acts,
    }


def channel_json(channel: Channel, *, secret: bool = False) -> ChannelJson:
    """A channel; its secret only for who may change it."""
    signs = secret and channel.kind == "webhook"
    return {
        "id": str(channel.id),
        "object": "slo_channel",
        "kind": channel.kind,
        "address": channel.shown,
        "secret": signing_secret(channel.id) if signs else None,
    }


def stage_json(owner: StageOwner) -> StageJson:
    """A stage's owner."""
    return {
        "stage": owner.stage,
        "object": "stage_owner",
        "team": owner.team,
        "email": owner.email,
        "budget_us": owner.budget_us,
        "runbook": runbook_path(owner.runbook),
    }
