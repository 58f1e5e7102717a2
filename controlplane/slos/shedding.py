"""Priorities that objectives keep out: `next_terms` decides, and its decisions are rows.

Gateways read the row that was not released, for as long as its lease goes.
"""

from collections.abc import Set
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from controlplane.core.audit.entries import Actor, audit_record
from controlplane.kernel.objectives.burn import PAGE, firing
from controlplane.slos.checks import chosen_rules
from controlplane.slos.models import Alert, Shed
from controlplane.slos.standings import ObjectiveStatus

WELL = timedelta(minutes=10)
LEAST, LEAST_MAX = timedelta(minutes=10), timedelta(hours=4)
# A shed that begins so soon after the last one's end is its relapse.
RELAPSE = timedelta(hours=1)
# Gateways ignore a shed that no one has renewed for so long. Renewing makes them read the
# configuration again: it is done when half of the lease is over.
LEASE = timedelta(minutes=5)


class ShedTerms(NamedTuple):
    """A priority shed since `since`, for `least` at least, and nowhere after `until`.

    What else came has been well from `well_since` on; `released_at` is when it was let in again.
    """

    since: datetime
    least: timedelta
    well_since: datetime | None
    until: datetime
    released_at: datetime | None = None


def next_terms(
    last: ShedTerms | None, *, paging: bool, burning: bool, now: datetime
) -> ShedTerms | None:
    """What becomes of an objective's last shed; None where there has been none and need be none.

    `paging` is whether a page fires, `burning` whether a rule of pages burns at all, however few
    the requests. A lease that ran out ended its shed then: no one watched since.
    """
    if last is None or last.released_at is not None:
        return _begun(last, now) if paging else last
    if last.until <= now:
        return last._replace(released_at=last.until)
    well_since = None if burning else last.well_since or now
    if well_since is not None and now - well_since >= WELL and now - last.since >= last.least:
        return last._replace(well_since=well_since, released_at=now)
    until = now + LEASE if last.until - now <= LEASE / 2 else last.until
    return last._replace(well_since=well_since, until=until)


def _begun(last: ShedTerms | None, now: datetime) -> ShedTerms:
    least = LEAST
    if last is not None and last.released_at is not None and now - last.released_at < RELAPSE:
        least = min(2 * last.least, LEAST_MAX)
    return ShedTerms(now, least, None, now + LEASE)


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
    last = None
    if row is not None:
        last = ShedTerms(row.since, row.least, row.well_since, row.until, row.released_at)
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
    audit_record(actor, action, subject=row, detail={"objective": row.objective.name, "act": words})
