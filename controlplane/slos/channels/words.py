"""What a message about an alert says, for people and for programs. Links are whole addresses
where the installation knows its own (`SLUICE_PAGES_URL`).
"""

import uuid
from datetime import timedelta
from typing import Any

from django.conf import settings

from controlplane.kernel.ids import public_id
from controlplane.kernel.objectives.burn import ABSENT, DAY_MIN, MILLION, RULES
from controlplane.slos.duties import indicator_owners
from controlplane.slos.models import Alert, Delivery, Objective
from controlplane.slos.runbooks import ABSENT_RUNBOOK, runbook_url
from controlplane.slos.standings import FIRING

RECOVERED, ASSIGNED, TEST, BUDGET = "recovered", "assigned", "test", "budget"
PERCENT_PPM = MILLION / 100
HOURS_A_DAY, TWO_DAYS_H = 24, 48
_WINDOWS = {rule.name: rule.long_min for rule in RULES}
TEST_SUBJECT = "Sluice: a test of this channel"
TEST_WORDS = (
    "Alerts of objectives come here from now on. Somebody asked for this test on the SLO page."
)


def subject(alert: Alert, event: str) -> str:
    """One line: what happened to which objective."""
    word = {"page": "at risk", "ticket": "burning its budget", ABSENT: "without data"}
    told = {FIRING: word[alert.severity], ASSIGNED: "assigned to you"}.get(event, "recovered")
    return f"Objective {alert.objective.name}: {told}"


def sentence(alert: Alert, event: str) -> str:
    """What it means, in one sentence."""
    objective = alert.objective
    if event == RECOVERED and alert.recovered_at is not None:
        return f"It recovered after {_length(alert.recovered_at - alert.created_at)}."
    if not alert.burn_long and alert.severity != ABSENT:
        return f"Rule {alert.rule} set it off."
    if not alert.burn_long:
        return f"No request has counted for {objective.absent_after_min} minutes."
    hours = objective.period_days * HOURS_A_DAY / alert.burn_long
    lasts = f"{hours / HOURS_A_DAY:.3g} days" if hours > TWO_DAYS_H else f"{hours:.3g} hours"
    return (
        f"Its error budget burned {alert.burn_long:.3g} times as fast as it may over"
        f" {_length(timedelta(minutes=_WINDOWS.get(alert.rule, 0)))}: at this rate the whole"
        f" budget of {objective.period_days} days lasts {lasts}."
    )


def _length(time: timedelta) -> str:
    minutes = max(1, round(time / timedelta(minutes=1)))
    if minutes % DAY_MIN == 0:
        days = minutes // DAY_MIN
        return f"{days} day{'s' if days > 1 else ''}"
    hours, rest = divmod(minutes, 60)
    parts = [f"{hours} h"] * (hours > 0) + [f"{rest} min"] * (rest > 0)
    return " ".join(parts)


def words(alert: Alert, event: str) -> str:
    objective = alert.objective
    lines = [
        sentence(alert, event),
        f"{objective.indicator}, target {objective.target_ppm / PERCENT_PPM:g} % over"
        f" {objective.period_days} days",
        f"{alert.severity} by {alert.rule} since {alert.created_at:%Y-%m-%d %H:%M:%S} UTC",
    ]
    if alert.burn_long is not None and alert.burn_short is not None:
        lines.append(
            f"burn rate {alert.burn_long:.3g} in the long window, {alert.burn_short:.3g} in the"
            " short one, where 1 spends the budget exactly over the period"
        )
    if event == RECOVERED and alert.recovered_at is not None:
        lines.append(f"recovered {alert.recovered_at:%Y-%m-%d %H:%M:%S} UTC")
    lines += [f"automatic action: {act}" for act in alert.acts]
    lines.append(f"owner: {objective.team} {objective.email}".strip())
    lines += [f"{duty}: {who}" for duty, who in indicator_owners(objective.indicator)]
    lines += [f"objective: {objective_url(alert)}", f"runbook: {runbook_url(alert_runbook(alert))}"]
    return "\n".join(lines)


def payload(alert: Alert, event: str, delivery_id: uuid.UUID) -> dict[str, Any]:
    """The message for programs; `id` is the same in every try, so that a repeat can be told.

    Burn rates have three significant digits.
    """
    return {
        "id": public_id("delivery", delivery_id),
        "event": f"alert.{event}",
        "alert": public_id("alert", alert.id),
        "summary": f"{subject(alert, event)}. {sentence(alert, event)}",
        "severity": alert.severity,
        "rule": alert.rule,
        "since": alert.created_at,
        "recovered_at": alert.recovered_at,
        "burn_rate": {"long": _rounded(alert.burn_long), "short": _rounded(alert.burn_short)},
        "acts": alert.acts,
        "objective": _objective(alert.objective),
        "owner": {"team": alert.objective.team, "email": alert.objective.email},
        "link": objective_url(alert),
        "runbook": runbook_url(alert_runbook(alert)),
    }


def test_payload(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": public_id("delivery", delivery.id),
        "event": "alert.test",
        "summary": f"{TEST_SUBJECT}. {TEST_WORDS}",
        "link": f"{settings.PAGES_URL}/slos",
    }


def _objective(objective: Objective) -> dict[str, Any]:
    return {
        "id": public_id("objective", objective.id),
        "name": objective.name,
        "indicator": objective.indicator,
        "target_ppm": objective.target_ppm,
        "period_days": objective.period_days,
        "version": objective.version,
    }


def objective_url(alert: Alert) -> str:
    """The objective's page with this alert's worst requests."""
    objective, one = public_id("objective", alert.objective_id), public_id("alert", alert.id)
    return f"{settings.PAGES_URL}/slos/{objective}?alert={one}"


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else float(f"{rate:.3g}")


def alert_runbook(alert: Alert) -> str:
    """The name of its runbook, or an address."""
    return ABSENT_RUNBOOK if alert.severity == ABSENT else alert.objective.runbook
