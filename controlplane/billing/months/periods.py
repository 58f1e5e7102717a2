"""Calendar months by UTC and the time of booking, whether one is closed for an organization, and
its months with their states, as pages and programs read them.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from django.core.exceptions import ValidationError
from django.db.models import Min

from controlplane.billing.ledger.models import JournalEntry, LedgerHour
from controlplane.billing.months.models import PeriodClose, PeriodCloseJob
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, organization_scope
from controlplane.core.queries import value
from controlplane.tenants.access import require
from controlplane.tenants.models import Organization

_NAME = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
MONTHS = 12
MONTHS_MAX = 120
# Those that were to close a month, tries that failed among them.
JOBS_READ_MAX = 100


class PeriodState(StrEnum):
    """How far a month is: it runs, it is over and may be closed, or nothing changes it any more."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True, order=True)
class Period:
    """A month by its name, `2026-11`; raises ValidationError on any other name."""

    name: str

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None or not "1970" <= self.name < "9999":
            raise ValidationError({"period": "Must be a month such as 2026-11."})

    def __str__(self) -> str:
        return self.name

    @property
    def start(self) -> datetime:
        year, month = self.name.split("-")
        return datetime(int(year), int(month), 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        year, month = divmod(self.start.year * MONTHS + self.start.month, MONTHS)
        return datetime(year, month + 1, 1, tzinfo=UTC)

    @property
    def after(self) -> Period:
        return period_of(self.end)

    @property
    def before(self) -> Period:
        return period_of(self.start - timedelta(days=1))


def period_of(moment: datetime) -> Period:
    return Period(moment.astimezone(UTC).strftime("%Y-%m"))


def first_period(organization: uuid.UUID) -> Period:
    """The first month that can have charges: of the first booking, or of the organization."""
    with organization_scope([organization]):
        mine = {"organization": organization}
        moments = (
            Organization.objects.get(id=organization).created_at,
            LedgerHour.objects.filter(**mine).aggregate(first=Min("hour"))["first"],
            JournalEntry.objects.filter(**mine).aggregate(first=Min("booked_at"))["first"],
        )
    return period_of(min(moment for moment in moments if moment is not None))


def periods_back(organization: uuid.UUID, most: int) -> list[Period]:
    """The newest months that can have charges, the one that runs first."""
    first, periods = first_period(organization), [period_of(datetime.now(UTC))]
    while len(periods) < most and periods[-1] > first:
        periods.append(periods[-1].before)
    return periods


def oldest_open(organization: uuid.UUID) -> Period:
    """The month that is closed next; months are closed in their order."""
    with organization_scope([organization]):
        rows = PeriodClose.objects.filter(organization=organization)
        closed = set(rows.values_list("period", flat=True))
    found = first_period(organization)
    while found.name in closed:
        found = found.after
    return found


def close_of(organization: uuid.UUID, period: Period) -> PeriodClose | None:
    with organization_scope([organization]):
        return PeriodClose.objects.filter(organization=organization, period=period.name).first()


def state_of(organization: uuid.UUID, period: Period) -> PeriodState:
    """By the database's clock, as bookings are."""
    if close_of(organization, period) is not None:
        return PeriodState.CLOSED
    over = value("SELECT clock_timestamp() >= %s", [period.end])
    return PeriodState.CLOSING if over else PeriodState.OPEN


def open_because(period: Period) -> str | None:
    """Why charges of it can still come: it has not ended, or is not sealed. None where none can."""
    told: str | None = value("SELECT ledger_period_open(%s)", [period.end])
    return told


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
    return _months(organization, periods_back(organization, MONTHS_MAX))


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
