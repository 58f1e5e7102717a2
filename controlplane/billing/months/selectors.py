"""The months of an organization with their states, as pages and programs read them."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from controlplane.billing.months.models import PeriodClose, PeriodCloseJob
from controlplane.billing.months.periods import Period, PeriodState, first_period, period_of
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.scope import organization_scope
from controlplane.tenants.access import require

MONTHS_MAX = 120
# Those that were to close a month, tries that failed among them.
JOBS_READ_MAX = 100


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


def month_list(*, actor: Actor, organization: uuid.UUID) -> list[Month]:
    """The months that can have charges, at most `MONTHS_MAX`, newest first, with their states."""
    require(actor, Action.LEDGER_VIEW, organization)
    first, periods = first_period(organization), [period_of(datetime.now(UTC))]
    while len(periods) < MONTHS_MAX and periods[-1] > first:
        periods.append(periods[-1].before)
    return _months(organization, periods)


def month_get(*, actor: Actor, organization: uuid.UUID, period: Period) -> Month:
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
