"""Priorities that objectives keep out: `shed_terms.py` decides, and its decisions are rows here.

Gateways read the row that was not released, for as long as its lease goes.
"""

from collections.abc import Set
from datetime import datetime, timedelta
from uuid import UUID

from controlplane.core.audit.entries import Actor, audit_record
from controlplane.kernel.objectives.burn import PAGE, firing
from controlplane.slos.checks import chosen_rules
from controlplane.slos.models import Alert, Shed
from controlplane.slos.shed_terms import WELL, ShedTerms, next_terms
from controlplane.slos.standings import ObjectiveStatus

PRIORITY_WORDS = {0: "low", 1: "normal"}
LET_IN = "no priority is shed any more"


def shed_words(priority: int) -> str:
    """Told on an alert: what is shed from now on, or is already."""
    return f"priority {PRIORITY_WORDS[priority]} is shed"


def stays_shed_words(priority: int) -> str:
    """Told on an alert that is over before its shed."""
    minutes = WELL // timedelta(minutes=1)
    return (
        f"priority {PRIORITY_WORDS[priority]} stays shed until all other objectives have been "
        f"healthy for {minutes} min"
    )


def shed_step(standing: ObjectiveStatus, actor: Actor, *, paging: bool, now: datetime) -> None:
    """Begin, renew or end what an objective keeps out; `paging` is whether its page fires."""
    objective, row = standing.objective, standing.shed
    if objective.shed_priority is None or not objective.enabled:
        if row is not None and row.released_at is None:
            shed_release(row, actor, now)
        return
    last = None if row is None else _terms(row)
    after = next_terms(last, paging=paging, burning=_burning(standing), now=now)
    if after is None or after == last:
        return
    if row is None or row.released_at is not None:
        made = Shed.objects.create(
            organization=objective.organization, objective=objective, **after._asdict()
        )
        _told(made, actor, "slo_hold.begin", shed_words(objective.shed_priority))
    elif after.released_at is not None:
        shed_release(row, actor, after.released_at)
    else:
        row.well_since, row.until = after.well_since, after.until
        row.save(update_fields=["well_since", "until"])


def shed_release(row: Shed, actor: Actor, at: datetime) -> None:
    row.released_at = at
    row.save(update_fields=["released_at"])
    _told(row, actor, "slo_hold.release", LET_IN)


def sheds_release_of_ended(actor: Actor, living: Set[UUID], now: datetime) -> None:
    """Let in what objectives keep out that have ended; within their scope."""
    for row in Shed.objects.filter(released_at=None).select_related("objective"):
        if row.objective_id not in living:
            shed_release(row, actor, now)


def _terms(row: Shed) -> ShedTerms:
    return ShedTerms(row.since, row.least, row.well_since, row.until, row.released_at)


def _burning(standing: ObjectiveStatus) -> bool:
    """Whether a rule of pages burns: few requests count here, since most may be shed."""
    objective = standing.objective
    rules = [rule for rule in chosen_rules(objective) if rule.severity == PAGE]
    return bool(firing(rules, standing.window, objective.target_ppm, objective.period_days))


def _told(row: Shed, actor: Actor, action: str, words: str) -> None:
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
