"""Looks at every objective each half minute: alerts begin and end here, and act where they may.

May run any number of times: an alert that fires is one row, which a constraint sees to, and each
message about it another.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction
from django.utils import timezone

from controlplane.core.audit.entries import Operator, audit_record
from controlplane.core.permissions import organization_scope
from controlplane.core.queries import rows, value
from controlplane.kernel.ids import public_id
from controlplane.kernel.objectives.burn import ABSENT, DAY_MIN, PAGE, TICKET, firing
from controlplane.routing.models import RuleSet
from controlplane.routing.selectors import ruleset_in_force, ruleset_on_trial
from controlplane.routing.services import RuleVersions
from controlplane.slos import shedding
from controlplane.slos.channels.messages import messages_queue
from controlplane.slos.checks import chosen_rules
from controlplane.slos.handling import silence_of
from controlplane.slos.models import Alert
from controlplane.slos.standings import FIRING, RECOVERED, ObjectiveStatus, standings

log = structlog.get_logger(__name__)


class ObjectiveWatch(Operator):
    """The job that looks at objectives, as the audit names it."""

    actor_label = "objective watch"


WATCH = ObjectiveWatch()


class Danger(NamedTuple):
    """What an objective's counts call for: an alert of a severity, and which rule says so."""

    severity: str
    rule: str
    burn_long: float | None
    burn_short: float | None


def objectives_evaluate(now: datetime | None = None) -> int:
    """Begin and end alerts; returns how many changed. Another run in progress does it instead."""
    moment = now or timezone.now()
    changed = 0
    for (organization,) in rows("SELECT slo_organizations()"):
        try:
            changed += _evaluate(organization, moment)
        except (DatabaseError, ValidationError):
            # The others' alerts must not wait for it; its own are looked at again next time.
            log.exception("objectives_not_evaluated", organization=public_id("org", organization))
    return changed


def dangers(standing: ObjectiveStatus, now: datetime) -> list[Danger]:
    """What the counts call for, one of each severity at most.

    A page says it all: a ticket begins beside it only if it was there before.
    """
    objective = standing.objective
    if not objective.enabled:
        return []
    fired = firing(
        chosen_rules(objective), standing.window, objective.target_ppm, objective.period_days
    )
    found: dict[str, Danger] = {}
    for one in fired:
        danger = Danger(one.severity, one.rule.name, one.burn_long, one.burn_short)
        found.setdefault(one.severity, danger)
    already = {alert.severity for alert in standing.alerts}
    if PAGE in found and TICKET not in already:
        found.pop(TICKET, None)
    if _absent(standing, now):
        found[ABSENT] = Danger(ABSENT, ABSENT, None, None)
    return list(found.values())


def _absent(standing: ObjectiveStatus, now: datetime) -> bool:
    """Whether data that came stay away; it is over when they come again, not before."""
    patience, last = standing.objective.absent_after_min, standing.counted_at
    if not patience or last is not None and now - last <= timedelta(minutes=patience):
        return False
    already = any(alert.severity == ABSENT for alert in standing.alerts)
    return already or bool(standing.window(DAY_MIN).total)


def _evaluate(organization: uuid.UUID, now: datetime) -> int:
    with organization_scope([organization]):
        if not _alone(organization):
            return 0
        found = standings([organization], now)
        changed = 0
        for standing in found:
            wanted = dangers(standing, now)
            changed += _compare(standing, wanted, now)
            paging = any(danger.severity == PAGE for danger in wanted)
            shedding.shed_step(standing, WATCH, paging=paging, now=now)
        living = {standing.objective.id for standing in found}
        # Of objectives that have ended.
        for alert in Alert.objects.filter(organization=organization, state=FIRING):
            if alert.objective_id not in living:
                _recover(alert, now)
                changed += 1
        shedding.sheds_release_of_ended(WATCH, living, now)
    return changed


def _alone(organization: uuid.UUID) -> bool:
    lock = "SELECT pg_try_advisory_xact_lock(hashtext('slos'), hashtext(%s))"
    return bool(value(lock, [str(organization)]))


def _compare(standing: ObjectiveStatus, wanted: Sequence[Danger], now: datetime) -> int:
    """Begin what fires and did not, end what did and does not; returns how many."""
    present = {alert.severity: alert for alert in standing.alerts}
    severities = {danger.severity for danger in wanted}
    changed = 0
    for danger in wanted:
        if danger.severity not in present:
            _begin(standing, danger, now)
            changed += 1
    for severity, alert in present.items():
        if severity not in severities:
            _recover(alert, now)
            changed += 1
        elif alert.muted and alert.acknowledged_at is None:
            _tell_late(alert, now)
    return changed


def _tell_late(alert: Alert, now: datetime) -> None:
    """Tell of one that began in a silence that is over, and still fires."""
    if silence_of(alert.objective, now) is None:
        alert.muted = False
        alert.save(update_fields=["muted"])
        messages_queue(alert, FIRING, now)


def _begin(standing: ObjectiveStatus, danger: Danger, now: datetime) -> None:
    objective = standing.objective
    alert = Alert.objects.create(
        created_at=now,
        organization=objective.organization,
        objective=objective,
        severity=danger.severity,
        rule=danger.rule,
        burn_long=danger.burn_long,
        burn_short=danger.burn_short,
        muted=silence_of(objective, now) is not None,
    )
    if danger.severity == PAGE:
        alert.acts = _act(standing)
        alert.save(update_fields=["acts"])
    _audit(alert, "slo_alert.fire")
    if not alert.muted:
        messages_queue(alert, FIRING, now)


def _recover(alert: Alert, now: datetime) -> None:
    alert.state, alert.recovered_at = RECOVERED, now
    priority = alert.objective.shed_priority
    if alert.severity == PAGE and priority is not None and alert.objective.enabled:
        alert.acts = [*alert.acts, shedding.stays_shed_words(priority)]
    alert.save(update_fields=["state", "recovered_at", "acts"])
    _audit(alert, "slo_alert.recover")
    if not alert.muted:
        messages_queue(alert, RECOVERED, now)


def _act(standing: ObjectiveStatus) -> list[str]:
    """What the objective does by itself as a page begins, in words; a new shed tells of itself."""
    objective, shed, done = standing.objective, standing.shed, []
    if objective.shed_priority is not None and shed is not None and shed.released_at is None:
        done.append(shedding.shed_words(objective.shed_priority))
    if objective.stop_canary:
        done.append(_stop_canary(objective.name))
    if objective.shift_version is not None:
        done.append(_shift(objective.shift_version))
    return done


def _stop_canary(name: str) -> str:
    canary = ruleset_on_trial()
    if canary is None:
        return "no canary was running"
    try:
        with transaction.atomic():
            RuleVersions(WATCH).canary_stop(canary, reason=f"objective {name}"[:200])
    except ValidationError as error:
        return f"canary {canary.version} was not stopped: {'; '.join(error.messages)}"
    return f"canary {canary.version} was stopped and stays stopped"


def _shift(version: int) -> str:
    present = ruleset_in_force()
    target = RuleSet.objects.filter(version=version).first()
    if target is None:
        return f"rules {version} do not exist"
    origin = present and present.copy_of
    if version in [each.version for each in (present, origin) if each]:
        return f"rules {version} were already live"
    try:
        with transaction.atomic():
            made = RuleVersions(WATCH).rollback(to=target)
    except ValidationError as error:
        return f"rules {version} were not published: {'; '.join(error.messages)}"
    return f"rules {version} were published as {made.version}; they stay live"


def _audit(alert: Alert, action: str) -> None:
    audit_record(
        WATCH,
        action,
        subject=alert,
        detail={
            "objective": alert.objective.name,
            "severity": alert.severity,
            "rule": alert.rule,
            "acts": list(alert.acts),
        },
    )
