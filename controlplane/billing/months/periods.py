"""Calendar months by UTC and the time of booking, and whether one is closed for an organization."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import Min

from controlplane.billing.ledger.models import JournalEntry, LedgerHour
from controlplane.billing.months.models import PeriodClose
from controlplane.core.scope import organization_scope
from controlplane.tenants.models import Organization

_NAME = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
MONTHS = 12


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
    """The month in which an aware moment lies."""
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
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp() >= %s", [period.end])
        over: bool = cursor.fetchone()[0]
    return PeriodState.CLOSING if over else PeriodState.OPEN


def open_because(period: Period) -> str | None:
    """Why charges of it can still come: it has not ended, or is not sealed. None where none can."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT ledger_period_open(%s)", [period.end])
        told: str | None = cursor.fetchone()[0]
        return told
