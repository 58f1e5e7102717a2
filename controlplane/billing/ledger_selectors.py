"""The books of one organization as pages and programs read them: balances, entries, months."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connection

from controlplane.billing.accounts import Group, balance, group_of
from controlplane.billing.models import (
    UNLIMITED_NANO,
    Budget,
    BudgetAlert,
    BudgetPeriod,
    JournalEntry,
    PeriodClose,
    Reconciliation,
)
from controlplane.billing.models_closes import PeriodCloseJob
from controlplane.billing.periods import Period, PeriodState, first_period, period_of
from controlplane.core.audit import Actor
from controlplane.core.paging import FIRST_PAGE, Page, PageAsk, page_read
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.telemetry.reading import bounded_read
from controlplane.tenants.access import require

RECONCILIATIONS_SHOWN = 10
MONTHS_MAX = 120
# Those that were to close a month, tries that failed among them.
JOBS_READ_MAX = 100
HUNDRED = 100

# Everything that posts, in one view: sealed hours, the lines since, the journal, and the wallet's
# own counter, which tells a wallet's charges from those to be paid by invoice.
_ACCOUNTS = """
    WITH charges AS (
        SELECT model, sum(nano) AS nano FROM ledger_hours
        WHERE organization = %(organization)s GROUP BY model
        UNION ALL
        SELECT model, sum(amount) FROM transfers
        WHERE organization = %(organization)s AND kind IN ('settle', 'overage', 'late')
          AND request >= request_floor(greatest(%(sealed)s - interval '8 days', 'epoch'))
          AND booked_at >= (SELECT coalesce(max(to_at), '-infinity') FROM ledger_seals)
        GROUP BY model
    ), prepaid AS (
        SELECT coalesce(sum(posted), 0) AS nano FROM budgets
        WHERE organization = %(organization)s AND scope = 'wallet'
    ), moved AS (
        SELECT 'revenue:' || model AS account, 0 AS debit, nano AS credit FROM charges
        UNION ALL
        SELECT 'wallet:' || %(organization)s, nano, 0 FROM prepaid
        UNION ALL
        SELECT 'receivable:' || %(organization)s,
               (SELECT coalesce(sum(nano), 0) FROM charges) - nano, 0 FROM prepaid
        UNION ALL
        SELECT debit, sum(amount), 0 FROM journal_entries
        WHERE organization = %(organization)s GROUP BY debit
        UNION ALL
        SELECT credit, 0, sum(amount) FROM journal_entries
        WHERE organization = %(organization)s GROUP BY credit
    )
    SELECT account, sum(debit)::bigint, sum(credit)::bigint FROM moved
    GROUP BY account HAVING sum(debit) + sum(credit) > 0 ORDER BY account
"""
_SEALED = "SELECT coalesce(max(to_at), 'epoch') FROM ledger_seals"


@dataclass(frozen=True)
class Account:
    """What was ever moved on an account, in nano-USD."""

    name: str
    debited: int
    credited: int

    @property
    def group(self) -> Group:
        """What it is."""
        return group_of(self.name)

    @property
    def balance(self) -> int:
        """As its kind is read: what is owed to us, what we owe, what was earned."""
        return balance(self.name, self.debited, self.credited)


@dataclass(frozen=True)
class Month:
    """A month and its state; `close` where it is closed, `job` the last that was to close it."""

    period: Period
    state: PeriodState
    close: PeriodClose | None
    job: PeriodCloseJob | None

    @property
    def digest(self) -> str:
        """The hash over its lines, in hex; empty where it is not closed."""
        return bytes(self.close.digest).hex() if self.close else ""


@dataclass(frozen=True)
class BudgetRow:
    """A budget as people read it; nothing in it is only for the hot path."""

    id: uuid.UUID
    scope: str
    allowance: int
    carried: int
    spent: int
    held: int
    room: int
    period: str
    zone: str
    rollover: bool
    began_at: datetime | None
    turns_at: datetime | None
    alerts: list[int]
    raised: list[int]

    @property
    def available(self) -> int:
        """What this period may spend."""
        return self.allowance + self.carried

    @property
    def percent(self) -> int:
        """How much of that is spent, rounded down."""
        return self.spent * HUNDRED // self.available if self.available else HUNDRED


def account_list(*, actor: Actor, organization: uuid.UUID) -> list[Account]:
    """Every account of the organization's books; raises TooMuchToRead."""
    require(actor, Action.LEDGER_VIEW, organization)
    with bounded_read([organization]), connection.cursor() as cursor:
        cursor.execute(_SEALED)
        values = {"organization": str(organization), "sealed": cursor.fetchone()[0]}
        cursor.execute(_ACCOUNTS, values)
        return [Account(*row) for row in cursor.fetchall()]


def entry_list(
    *, actor: Actor, organization: uuid.UUID, ask: PageAsk = FIRST_PAGE
) -> Page[JournalEntry]:
    """What was booked besides requests, newest first."""
    require(actor, Action.LEDGER_VIEW, organization)
    with organization_scope([organization]):
        return page_read(JournalEntry.objects.filter(organization=organization), ask)


def reconciliation_list(*, actor: Actor, organization: uuid.UUID) -> list[Reconciliation]:
    """The latest comparisons, newest first."""
    require(actor, Action.LEDGER_VIEW, organization)
    with organization_scope([organization]):
        found = Reconciliation.objects.filter(organization=organization)
        return list(found[:RECONCILIATIONS_SHOWN])


def month_list(*, actor: Actor, organization: uuid.UUID) -> list[Month]:
    """The months that can have charges, at most `MONTHS_MAX`, newest first, with their states."""
    require(actor, Action.LEDGER_VIEW, organization)
    first, periods = first_period(organization), [period_of(datetime.now(UTC))]
    while len(periods) < MONTHS_MAX and periods[-1] > first:
        periods.append(periods[-1].before)
    return _months(organization, periods)


def month_get(*, actor: Actor, organization: uuid.UUID, period: Period) -> Month:
    """One month, however long ago."""
    require(actor, Action.LEDGER_VIEW, organization)
    return _months(organization, [period])[0]


def _months(organization: uuid.UUID, periods: list[Period]) -> list[Month]:
    names, now = [one.name for one in periods], period_of(datetime.now(UTC))
    mine = {"organization": organization, "period__in": names}
    with organization_scope([organization]):
        closed = {close.period: close for close in PeriodClose.objects.filter(**mine)}
        jobs = PeriodCloseJob.objects.filter(**mine).order_by("-id")[:JOBS_READ_MAX]
        latest = {job.period: job for job in reversed(jobs)}

    def month(one: Period) -> Month:
        close, job = closed.get(one.name), latest.get(one.name)
        over = PeriodState.CLOSED if close else PeriodState.CLOSING
        return Month(one, PeriodState.OPEN if one >= now else over, close, job)

    return [month(one) for one in periods]


def budget_list(*, actor: Actor, organization: uuid.UUID) -> list[BudgetRow]:
    """Every limit in force, the organization's first; each with what is spent and reached."""
    require(actor, Action.LEDGER_VIEW, organization)
    with organization_scope([organization]):
        rows = Budget.objects.filter(organization=organization, lim__lt=UNLIMITED_NANO)
        found = list(rows.exclude(scope="wallet").select_related("terms"))
        raised: dict[tuple[uuid.UUID, datetime], list[int]] = {}
        for alert in BudgetAlert.objects.filter(budget__in=[one.id for one in found]):
            raised.setdefault((alert.budget, alert.began_at), []).append(alert.percent)
    order = {"organization": 0, "project": 1, "key": 2}
    return sorted(
        (_budget_row(one, raised) for one in found), key=lambda row: (order[row.scope], row.id)
    )


def _budget_row(budget: Budget, raised: dict[tuple[uuid.UUID, datetime], list[int]]) -> BudgetRow:
    terms = getattr(budget, "terms", None)
    began = terms.began_at if terms else None
    return BudgetRow(
        id=budget.id,
        scope=budget.scope,
        allowance=terms.allowance if terms else budget.lim,
        carried=terms.carried if terms else 0,
        spent=budget.posted - (terms.base + terms.given if terms else 0),
        held=budget.held,
        room=budget.room_nano,
        period=terms.period if terms else BudgetPeriod.NONE.value,
        zone=terms.zone if terms else "UTC",
        rollover=bool(terms and terms.rollover),
        began_at=began,
        turns_at=terms.turns_at if terms else None,
        alerts=sorted(terms.alerts) if terms else [],
        raised=sorted(raised.get((budget.id, began), [])) if began else [],
    )
