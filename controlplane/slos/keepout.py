"""Priorities that objectives keep out: `holds.py` decides, and its decisions are rows here.

Gateways read the row that was not released, for as long as its lease goes.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime, timedelta
from uuid import UUID

from controlplane.core.audit import Actor, audit_record
from controlplane.kernel.burn import PAGE, firing
from controlplane.slos.checks import chosen_rules
from controlplane.slos.holds import WELL, Held, next_held
from controlplane.slos.models import Alert, Hold
from controlplane.slos.standings import Standing

PRIORITY_WORDS = {0: "low", 1: "normal"}
LET_IN = "no priority is kept out any more"


def kept_out_words(priority: int) -> str:
    """Told on an alert: what is kept out from now on, or is already."""
    return f"priority {PRIORITY_WORDS[priority]} is kept out"


def stays_out_words(priority: int) -> str:
    """Told on an alert that is over before its hold."""
    minutes = WELL // timedelta(minutes=1)
    return (
        f"priority {PRIORITY_WORDS[priority]} stays kept out until all else has been well for"
        f" {minutes} min"
    )


def hold_step(standing: Standing, actor: Actor, *, paging: bool, now: datetime) -> None:
    """Begin, renew or end what an objective keeps out; `paging` is whether its page fires."""
    objective, row = standing.objective, standing.hold
    if objective.shed_priority is None or not objective.enabled:
        if row is not None and row.released_at is None:
            hold_release(row, actor, now)
        return
    last = None if row is None else _held(row)
    after = next_held(last, paging=paging, burning=_burning(standing), now=now)
    if after is None or after == last:
        return
    if row is None or row.released_at is not None:
        made = Hold.objects.create(
            organization=objective.organization, objective=objective, **after._asdict()
        )
        _told(made, actor, "slo_hold.begin", kept_out_words(objective.shed_priority))
    elif after.released_at is not None:
        hold_release(row, actor, after.released_at)
    else:
        row.well_since, row.until = after.well_since, after.until
        row.save(update_fields=["well_since", "until"])


def hold_release(row: Hold, actor: Actor, at: datetime) -> None:
    """Let the priority in again."""
    row.released_at = at
    row.save(update_fields=["released_at"])
    _told(row, actor, "slo_hold.release", LET_IN)


def holds_release_of_ended(actor: Actor, living: Set[UUID], now: datetime) -> None:
    """Let in what objectives keep out that have ended; within their scope."""
    for row in Hold.objects.filter(released_at=None).select_related("objective"):
        if row.objective_id not in living:
            hold_release(row, actor, now)


def _held(row: Hold) -> Held:
    return Held(row.since, row.least, row.well_since, row.until, row.released_at)


def _burning(standing: Standing) -> bool:
    """Whether a rule of pages burns: few requests count here, since most may be kept out."""
    objective = standing.objective
    rules = [rule for rule in chosen_rules(objective) if rule.severity == PAGE]
    return bool(firing(rules, standing.window, objective.target_ppm, objective.period_days))


def _told(row: Hold, actor: Actor, action: str, words: str) -> None:
    """On the newest page, and in the audit."""
    pages = Alert.objects.filter(objective=row.objective, severity=PAGE)
    alert = pages.order_by("-created_at").first()
    if alert is not None:
        alert.acts = [*alert.acts, words]
        alert.save(update_fields=["acts"])
    audit_record(
        actor,
        action,
        subject=row,
        organization_id=None,
        detail={"objective": row.objective.name, "act": words},
    )
