"""What is to be exported: checked once, then carried to whoever writes it."""

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.core.exceptions import ValidationError

from controlplane.billing.exports.models import ExportGrain, ExportKind
from controlplane.billing.months.periods import Period

DAYS_MAX = 366
YEAR_MIN = 2020
GRAINS = {
    ExportKind.USAGE: (ExportGrain.DAY, ExportGrain.HOUR),
    ExportKind.FOCUS: (ExportGrain.DAY, ExportGrain.HOUR),
    ExportKind.DETAIL: (ExportGrain.ENTRY,),
    ExportKind.JOURNAL: (ExportGrain.DAY, ExportGrain.ENTRY),
}


@dataclass(frozen=True)
class ExportSpec:
    """A kind of file over whole days in UTC, [start, end). `raw` leaves the formula guard out."""

    organization: uuid.UUID
    kind: ExportKind
    start: datetime
    end: datetime
    grain: ExportGrain
    raw: bool = False

    def file_name(self, through: datetime) -> str:
        """What the file is called when it is saved; one that ends early names its last hour."""
        last = (self.end - timedelta(days=1)).date()
        ends = f"{last}" if through >= self.end else f"{through:%Y-%m-%dT%HZ}-incomplete"
        return f"sluice-{self.kind}-{self.start.date()}-to-{ends}.csv"


def spec_of(
    organization: uuid.UUID,
    *,
    kind: str,
    start: date,
    end: date,
    grain: str = "",
    raw: bool = False,
) -> ExportSpec:
    """The checked request; `end` is the day after the last. Raises ValidationError by field."""
    if kind not in ExportKind.values:
        raise ValidationError({"kind": f"Must be one of {', '.join(ExportKind.values)}."})
    allowed = GRAINS[ExportKind(kind)]
    if grain and grain not in allowed:
        raise ValidationError({"grain": f"Must be one of {', '.join(allowed)} for {kind}."})
    if start.year < YEAR_MIN:
        raise ValidationError({"start": f"Must not be before {YEAR_MIN}."})
    if not timedelta(0) < end - start <= timedelta(days=DAYS_MAX):
        raise ValidationError({"end": f"Must be 1 to {DAYS_MAX} days after the start."})
    return ExportSpec(
        organization=organization,
        kind=ExportKind(kind),
        start=_midnight(start),
        end=_midnight(end),
        grain=ExportGrain(grain) if grain else allowed[0],
        raw=raw,
    )


def days_of_period(period: str) -> tuple[date, date]:
    """First day of a month such as "2026-10", and of the next; raises ValidationError."""
    month = Period(period)
    return month.start.date(), month.end.date()


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
