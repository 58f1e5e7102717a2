"""Budgets that begin again by the calendar of a named zone: set by people, turned by a job; and
shares of them that were reached: noted once in each period, and sent by mail.

Enforcement stays one comparison on the budget's row; a turn only moves its limit.
"""

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo, available_timezones

import msgspec
import structlog
from django.core.exceptions import ValidationError
from django.core.mail import send_mail
from django.db import connection

from controlplane.billing.budgets.models import (
    UNLIMITED_NANO,
    Budget,
    BudgetAlert,
    BudgetPart,
    BudgetPeriod,
    BudgetScope,
    BudgetTerms,
)
from controlplane.catalog.selectors import model_find
from controlplane.core.audit.entries import OPERATOR, Actor, Facts, audit_record
from controlplane.core.jobs.each import each_alone
from controlplane.core.permissions import Action, Role, organization_scope, role_allows
from controlplane.core.queries import rows, value
from controlplane.kernel.calendar import period_around
from controlplane.kernel.ids import id_of_type
from controlplane.kernel.money import usd_text
from controlplane.tenants.access import permitted, require
from controlplane.tenants.models import ApiKey, Organization, Project
from controlplane.tenants.people.selectors import member_list
from controlplane.tenants.selectors import organization_ids

ALERTS_MAX = 10
ALERT_PERCENT_MAX = 1_000
TURNS_PER_RUN_MAX = 1_000
ALERT_PAGE_ROWS = 500
HUNDRED = 100
log = structlog.get_logger(__name__)


class ProjectPart(NamedTuple):
    """The requests of a project to one model; without a model those of each end user."""

    project: Project
    model: str = ""


Subject = Organization | Project | ApiKey | ProjectPart


class BudgetDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    check_budget(subject, draft)
    about, part = _audited(subject)
    terms = BudgetTerms(
        period=draft.period, zone=draft.zone, rollover=draft.rollover, alerts=sorted(draft.alerts)
    )
    budget = budget_id(subject)
    with organization_scope([organization]):
        if isinstance(subject, ProjectPart):
            BudgetPart.objects.get_or_create(
                budget=budget,
                organization=organization,
                project=subject.project.id,
                model=subject.model or None,
            )
        budget_put(organization, budget, scope_of(subject), terms, draft.allowance_nano)
        forget_unreached(budget)
        audit_record(
            actor,
            "budget.set",
            subject=about,
            detail={
                "scope": scope_of(subject).value,
                **part,
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
    with permitted(actor, Action.BUDGET_SET, organization):
        budget_put(
            organization, budget_id(subject), scope_of(subject), BudgetTerms(), UNLIMITED_NANO
        )
        about, part = _audited(subject)
        audit_record(actor, "budget.end", subject=about, detail=part)


def budget_set(organization: UUID, subject: UUID, *, scope: BudgetScope, limit_nano: int) -> None:
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
    organization: UUID, subject: UUID, scope: BudgetScope, terms: BudgetTerms, limit_nano: int
) -> None:
    """Write a budget by these terms' period, zone, roll-over and alerts; needs the scope open."""
    period = BudgetPeriod(terms.period)
    began, turns = period_around(period, ZoneInfo(terms.zone), datetime.now(UTC))
    rows(
        "SELECT ledger_budget_set(%s, %s, %s, %s, %s, %s, %s, %s::smallint[], %s, %s)",
        [
            *(subject, organization, scope.value, limit_nano),
            *(period.value, terms.zone, terms.rollover, terms.alerts, began, turns),
        ],
    )


def budget_id(subject: Subject) -> UUID:
    """The id of the budget of something; a rotated key spends from the first key's."""
    if isinstance(subject, ProjectPart):
        part = f"model {subject.model}" if subject.model else "users"
        return uuid5(subject.project.id, part)
    return subject.limits_id if isinstance(subject, ApiKey) else subject.id


def scope_of(subject: Subject) -> BudgetScope:
    if isinstance(subject, ApiKey):
        return BudgetScope.KEY
    if isinstance(subject, ProjectPart):
        return BudgetScope.MODEL if subject.model else BudgetScope.USERS
    return BudgetScope.PROJECT if isinstance(subject, Project) else BudgetScope.ORGANIZATION


def turn_budgets() -> int:
    """Begin the periods that are due, a bounded number, each by itself; returns how many began.

    One that fails keeps the limit of its old period, so it never allows too much.
    """
    organizations = organization_ids(user=OPERATOR)
    with organization_scope(organizations):
        now = value("SELECT clock_timestamp()").astimezone(UTC)
        ended = BudgetTerms.objects.filter(turns_at__lte=now).order_by("turns_at", "budget_id")
        due = list(ended[:TURNS_PER_RUN_MAX])
    return sum(each_alone("turn_budgets", due, partial(_turn, now)))


def _turn(now: datetime, terms: BudgetTerms) -> int:
    began, turns = period_around(terms.period, ZoneInfo(terms.zone), now)
    values = [terms.budget_id, terms.turns_at, began, turns]
    with organization_scope([terms.organization]):
        return int(value("SELECT ledger_budget_turn(%s, %s, %s, %s)", values))


def _audited(subject: Subject) -> tuple[Organization | Project | ApiKey, Facts]:
    """What an audit entry is about, and which part of it."""
    if isinstance(subject, ProjectPart):
        return subject.project, {"model": subject.model}
    return subject, {}


def _organization_of(subject: Subject) -> UUID:
    if isinstance(subject, ProjectPart):
        return subject.project.organization_id
    return subject.id if isinstance(subject, Organization) else subject.organization_id


def _check_part(part: ProjectPart, draft: BudgetDraft) -> None:
    if part.model and model_find(name=part.model) is None:
        raise ValidationError({"model": f"Model {part.model!r} not found."})
    if not part.model and (draft.rollover or draft.alerts):
        told = "A budget of each end user has no carry-over and no alerts."
        raise ValidationError({"rollover" if draft.rollover else "alerts": told})


def check_budget(subject: Subject, draft: BudgetDraft) -> None:
    """Raises ValidationError that names the field."""
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
    if isinstance(subject, ProjectPart):
        _check_part(subject, draft)


def raise_alerts(also: Callable[[Budget, int], None]) -> int:
    """Note, and tell by mail, every share that a budget has newly reached; returns how many.

    `also` is called with a budget and the largest of them, in the transaction that notes them.
    """
    organizations = organization_ids(user=OPERATOR)
    raise_one = partial(_raise, also=also)
    return sum(
        sum(each_alone("raise_alerts", budgets, raise_one))
        for budgets in _alert_pages(organizations)
    )


def _raise(budget: Budget, *, also: Callable[[Budget, int], None]) -> int:
    with organization_scope([budget.organization]):
        new = [percent for percent in reached(budget) if _note(budget, percent)]
        if not new:
            return 0
        also(budget, max(new))
        told = reached_words(budget, max(new))
    _tell(budget, *told)
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


def forget_unreached(budget_id: uuid.UUID) -> None:
    """A raised limit can be reached again: what is below it now is told again then."""
    budget = Budget.objects.select_related("terms").get(id=budget_id)
    alerts = BudgetAlert.objects.filter(budget=budget_id, began_at=budget.terms.began_at)
    alerts.exclude(percent__in=reached(budget)).delete()


def budget_name(budget: Budget) -> str:
    """What it is of, by the names that people gave; needs the scope open."""
    part = BudgetPart.objects.filter(budget=budget.id).first()
    if part is not None:
        return f"model {part.model} in project {Project.objects.get(id=part.project).name}"
    if budget.scope == BudgetScope.KEY:
        return f"key {ApiKey.objects.get(id=budget.id).label}"
    if budget.scope == BudgetScope.PROJECT:
        return f"project {Project.objects.get(id=budget.id).name}"
    return f"organization {Organization.objects.get(id=budget.organization).name}"


def reached_words(budget: Budget, percent: int) -> tuple[str, str]:
    """What a message says of it: a title, and a text of two sentences; needs the scope open."""
    terms, name = budget.terms, budget_name(budget)
    spent, available = spent_nano(budget, terms), terms.allowance + terms.carried
    return (
        f"Sluice: {percent} % of the budget of {name} is spent",
        f"Of the budget of {name}, {usd_text(spent)} USD of"
        f" {usd_text(available)} USD are spent. Period: {terms.period} ({terms.zone}), since"
        f" {terms.began_at:%Y-%m-%d %H:%M} UTC.",
    )


def _tell(budget: Budget, title: str, text: str) -> None:
    members = [
        one.membership for one in member_list(actor=OPERATOR, organization_id=budget.organization)
    ]
    to = [one.user.email for one in members if role_allows(Role(one.role), Action.BUDGET_SET)]
    try:
        send_mail(title, f"{text}\n", None, to)
    except OSError as error:
        # The pages show the alert in any case.
        log.warning(
            "alert_not_mailed", budget=id_of_type(budget.scope, budget.id), reason=str(error)
        )
