"""Budgets that begin anew by the calendar of a named zone: set by people, turned and told by jobs.

Enforcement stays one comparison on the budget's row; a turn only moves its limit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo, available_timezones

import structlog
from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.db import connection

from controlplane.billing.models import (
    UNLIMITED_NANO,
    Budget,
    BudgetAlert,
    BudgetPeriod,
    BudgetScope,
    BudgetTerms,
)
from controlplane.billing.services import budget_put
from controlplane.core.audit import OPERATOR, Actor, audit_record
from controlplane.core.each import each_alone
from controlplane.core.permissions import Action, Role, role_allows
from controlplane.core.scope import organization_scope
from controlplane.kernel.calendar import period_around
from controlplane.kernel.money import usd_text
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Organization, Project
from controlplane.tenants.selectors import organization_ids
from controlplane.tenants.selectors_people import member_list

ALERTS_MAX = 10
ALERT_PERCENT_MAX = 1_000
TURNS_PER_RUN_MAX = 1_000
ALERT_PAGE_ROWS = 500
HUNDRED = 100

log = structlog.get_logger(__name__)
Subject = Organization | Project | ApiKey


@dataclass(frozen=True, kw_only=True)
class BudgetDraft:
    """What may be spent in each period, or in all where `period` is none.

    Days and weeks (from Monday) and months begin by the clock of `zone`, an IANA name. With
    `rollover` the unused rest of one period is added to the next, at most one allowance. `alerts`
    are percentages of what a period may spend.
    """

    allowance_nano: int
    period: str = BudgetPeriod.NONE.value
    zone: str = "UTC"
    rollover: bool = False
    alerts: tuple[int, ...] = ()


def budget_plan(*, actor: Actor, subject: Subject, draft: BudgetDraft) -> None:
    """Set the budget of an organization, a project or a key; what is spent already counts.

    Raises ValidationError that names the field.
    """
    organization = _organization_of(subject)
    require(actor, Action.BUDGET_SET, organization)
    _check(draft)
    terms = BudgetTerms(
        period=draft.period, zone=draft.zone, rollover=draft.rollover, alerts=sorted(draft.alerts)
    )
    budget = budget_id(subject)
    with organization_scope([organization]):
        budget_put(organization, budget, scope_of(subject), terms, draft.allowance_nano)
        _forget_unreached(budget)
        audit_record(
            actor,
            "budget.set",
            subject=subject,
            organization_id=organization,
            detail={
                "scope": scope_of(subject).value,
                "allowance_nano": draft.allowance_nano,
                "period": draft.period,
                "zone": draft.zone,
                "rollover": draft.rollover,
                "alerts": [str(percent) for percent in sorted(draft.alerts)],
            },
        )


def budget_end(*, actor: Actor, subject: Subject) -> None:
    """Take a budget away; what was spent is still counted."""
    organization = _organization_of(subject)
    require(actor, Action.BUDGET_SET, organization)
    with organization_scope([organization]):
        budget_put(
            organization, budget_id(subject), scope_of(subject), BudgetTerms(), UNLIMITED_NANO
        )
        audit_record(actor, "budget.end", subject=subject, organization_id=organization)


def budget_id(subject: Subject) -> uuid.UUID:
    """The id of the budget of something; a rotated key spends from the first key's."""
    return subject.limits_id if isinstance(subject, ApiKey) else subject.id


def scope_of(subject: Subject) -> BudgetScope:
    """What kind of budget that is."""
    if isinstance(subject, ApiKey):
        return BudgetScope.KEY
    return BudgetScope.PROJECT if isinstance(subject, Project) else BudgetScope.ORGANIZATION


def turn_budgets() -> int:
    """Begin the periods that are due, a bounded number, each by itself; returns how many began.

    One that fails keeps the limit of its old period, so it never allows too much.
    """
    organizations = organization_ids(user=OPERATOR)
    with organization_scope(organizations), connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0].astimezone(UTC)
        rows = BudgetTerms.objects.filter(turns_at__lte=now).order_by("turns_at", "budget_id")
        due = list(rows[:TURNS_PER_RUN_MAX])
    return sum(each_alone("turn_budgets", due, partial(_turn, now)))


def _turn(now: datetime, terms: BudgetTerms) -> int:
    began, turns = period_around(terms.period, ZoneInfo(terms.zone), now)
    with organization_scope([terms.organization]), connection.cursor() as cursor:
        cursor.execute(
            "SELECT ledger_budget_turn(%s, %s, %s, %s)",
            [terms.budget_id, terms.turns_at, began, turns],
        )
        turned: int = cursor.fetchone()[0]
        return turned


def raise_alerts() -> int:
    """Note, and tell by mail, every share that a budget has newly reached; returns how many."""
    organizations = organization_ids(user=OPERATOR)
    return sum(
        sum(each_alone("raise_alerts", budgets, _raise)) for budgets in _alert_pages(organizations)
    )


def _raise(budget: Budget) -> int:
    with organization_scope([budget.organization]):
        new = [percent for percent in reached(budget) if _note(budget, percent)]
    if new:
        _tell(budget, max(new))
    return len(new)


def spent_nano(budget: Budget, terms: BudgetTerms) -> int:
    """What counts against this period: charged since it began, less what was given back."""
    return budget.posted - terms.base - terms.given


def reached(budget: Budget) -> list[int]:
    """The percentages of its alerts that a budget has reached; it comes with its terms."""
    terms = budget.terms
    available = terms.allowance + terms.carried
    spent = spent_nano(budget, terms)
    return [percent for percent in terms.alerts if spent * HUNDRED >= percent * available]


def _alert_pages(organizations: list[uuid.UUID]) -> Iterator[list[Budget]]:
    last = uuid.UUID(int=0)
    while True:
        with organization_scope(organizations):
            rows = Budget.objects.filter(id__gt=last, terms__alerts__len__gt=0)
            page = list(rows.select_related("terms").order_by("id")[:ALERT_PAGE_ROWS])
        if not page:
            return
        yield page
        last = page[-1].id


def _note(budget: Budget, percent: int) -> bool:
    terms = budget.terms
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO budget_alerts (budget, began_at, percent, organization, spent, allowance)"
            " VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            [
                budget.id,
                terms.began_at,
                percent,
                budget.organization,
                spent_nano(budget, terms),
                terms.allowance + terms.carried,
            ],
        )
        return bool(cursor.rowcount)


def _forget_unreached(budget_id: uuid.UUID) -> None:
    """A raised limit can be reached again: what is below it now is told again then."""
    budget = Budget.objects.select_related("terms").get(id=budget_id)
    alerts = BudgetAlert.objects.filter(budget=budget_id, began_at=budget.terms.began_at)
    alerts.exclude(percent__in=reached(budget)).delete()


def _tell(budget: Budget, percent: int) -> None:
    members = [
        one.membership for one in member_list(actor=OPERATOR, organization_id=budget.organization)
    ]
    to = [one.user.email for one in members if role_allows(Role(one.role), Action.BUDGET_SET)]
    terms = budget.terms
    what = f"the {budget.scope} {budget.id}"
    try:
        send_mail(
            f"Sluice: {percent} % of a budget is spent",
            f"Of the budget of {what}, {usd_text(spent_nano(budget, terms))} USD of"
            f" {usd_text(terms.allowance + terms.carried)} USD are spent."
            f" Period: {terms.period} ({terms.zone}), since {terms.began_at:%Y-%m-%d %H:%M} UTC.\n",
            None,
            to,
        )
    except OSError as error:
        # The pages show the alert in any case.
        log.warning("alert_not_mailed", budget=budget.id.hex, reason=str(error))


def _organization_of(subject: Subject) -> uuid.UUID:
    return subject.id if isinstance(subject, Organization) else subject.organization_id


def _check(draft: BudgetDraft) -> None:
    if not 0 <= draft.allowance_nano < UNLIMITED_NANO:
        raise ValidationError({"allowance": f"Must be 0 to {UNLIMITED_NANO - 1} nano-USD."})
    if draft.period not in BudgetPeriod.values:
        raise ValidationError({"period": f"Must be one of {', '.join(BudgetPeriod.values)}."})
    if draft.zone not in available_timezones():
        raise ValidationError({"zone": f"There is no time zone {draft.zone!r}."})
    if draft.rollover and draft.period == BudgetPeriod.NONE:
        raise ValidationError({"rollover": "Only what has periods can roll over."})
    if len(draft.alerts) > ALERTS_MAX or len(set(draft.alerts)) != len(draft.alerts):
        raise ValidationError({"alerts": f"At most {ALERTS_MAX} different percentages."})
    if not all(1 <= percent <= ALERT_PERCENT_MAX for percent in draft.alerts):
        raise ValidationError({"alerts": f"Must be 1 to {ALERT_PERCENT_MAX} percent."})
