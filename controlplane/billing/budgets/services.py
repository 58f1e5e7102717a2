"""Budgets that begin again by the calendar of a named zone: set by people, turned by a job.

Enforcement stays one comparison on the budget's row; a turn only moves its limit.
"""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo, available_timezones

from django.core.exceptions import ValidationError
from django.db import connection

from controlplane.billing.budgets.alerts import forget_unreached
from controlplane.billing.budgets.models import (
    UNLIMITED_NANO,
    BudgetPeriod,
    BudgetScope,
    BudgetTerms,
)
from controlplane.core.audit.entries import OPERATOR, Actor, audit_record
from controlplane.core.jobs.each import each_alone
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.kernel.calendar import period_around
from controlplane.tenants.access import require
from controlplane.tenants.models import ApiKey, Organization, Project
from controlplane.tenants.selectors import organization_ids

ALERTS_MAX = 10
ALERT_PERCENT_MAX = 1_000
TURNS_PER_RUN_MAX = 1_000
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
        forget_unreached(budget)
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


def budget_set(
    organization: uuid.UUID, subject: uuid.UUID, *, scope: BudgetScope, limit_nano: int
) -> None:
    """Limit what a key, project or organization may spend; may be below what is spent.

    A budget that begins anew by the calendar goes on to do so. Raises ValueError on a limit that no
    budget can have.
    """
    if not 0 <= limit_nano <= UNLIMITED_NANO:
        raise ValueError(f"limit_nano must be 0 to {UNLIMITED_NANO}, not {limit_nano}")
    with organization_scope([organization]):
        terms = BudgetTerms.objects.filter(budget=subject).first() or BudgetTerms()
        budget_put(organization, subject, scope, terms, limit_nano)


def budget_put(
    organization: uuid.UUID,
    subject: uuid.UUID,
    scope: BudgetScope,
    terms: BudgetTerms,
    limit_nano: int,
) -> None:
    """Write a budget by these terms' period, zone, roll-over and alerts; needs the scope open."""
    period = BudgetPeriod(terms.period)
    began, turns = period_around(period, ZoneInfo(terms.zone), datetime.now(UTC))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT ledger_budget_set(%s, %s, %s, %s, %s, %s, %s, %s::smallint[], %s, %s)",
            [
                subject,
                organization,
                scope.value,
                limit_nano,
                period.value,
                terms.zone,
                terms.rollover,
                terms.alerts,
                began,
                turns,
            ],
        )


def budget_id(subject: Subject) -> uuid.UUID:
    """The id of the budget of something; a rotated key spends from the first key's."""
    return subject.limits_id if isinstance(subject, ApiKey) else subject.id


def scope_of(subject: Subject) -> BudgetScope:
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


def _organization_of(subject: Subject) -> uuid.UUID:
    return subject.id if isinstance(subject, Organization) else subject.organization_id


def _check(draft: BudgetDraft) -> None:
    if not 0 <= draft.allowance_nano < UNLIMITED_NANO:
        raise ValidationError({"allowance": f"Must be 0 to {UNLIMITED_NANO - 1} nano-USD."})
    if draft.period not in BudgetPeriod.values:
        raise ValidationError({"period": f"Must be one of {', '.join(BudgetPeriod.values)}."})
    if draft.zone not in available_timezones():
        raise ValidationError({"zone": f"Unknown time zone {draft.zone!r}."})
    if draft.rollover and draft.period == BudgetPeriod.NONE:
        raise ValidationError({"rollover": "Only a budget with a period can roll over."})
    if len(draft.alerts) > ALERTS_MAX or len(set(draft.alerts)) != len(draft.alerts):
        raise ValidationError({"alerts": f"At most {ALERTS_MAX} different percentages."})
    if not all(1 <= percent <= ALERT_PERCENT_MAX for percent in draft.alerts):
        raise ValidationError({"alerts": f"Must be 1 to {ALERT_PERCENT_MAX} percent."})
