"""Capacity worksheets that are kept for a quarter: rows that nobody changes, beside what came."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import transaction

from controlplane.core.audit.entries import Actor, Facts, audit_record
from controlplane.core.permissions import Action
from controlplane.insights.capacity import (
    FIGURES,
    HUNDRED,
    MeasuredLoad,
    Worksheet,
    capacity_read,
    sheet_values,
    whole_hours,
)
from controlplane.insights.models import NOTE_CHARS_MAX, WorksheetRevision
from controlplane.kernel.insights.capacity import GROWTH_DAYS
from controlplane.telemetry.selectors_usage import usage_by_model
from controlplane.tenants.access import require
from controlplane.tenants.selectors import organization_names

SHOWN_MAX = 50
REVISIONS_MAX = 1_000
QUARTERS_AHEAD = 4
MONTHS = 3
GROWTH = timedelta(days=GROWTH_DAYS)
_QUARTER = re.compile(r"20[0-9]{2}-Q[1-4]", re.ASCII)


@dataclass(frozen=True)
class ComparedFigure:
    """One figure of a revision beside what came in its quarter; None where nothing did, or where
    it is not measured but chosen."""

    name: str
    label: str
    unit: str
    kept: float
    came: float | None

    @property
    def ratio(self) -> float | None:
        """What came, of what was foreseen."""
        return self.came / self.kept if self.came is not None and self.kept else None


def quarter_of(moment: datetime) -> str:
    """`2026-Q4`, of UTC."""
    moment = moment.astimezone(UTC)
    return f"{moment.year}-Q{(moment.month - 1) // MONTHS + 1}"


def quarter_range(quarter: str) -> tuple[datetime, datetime]:
    """Its beginning and its end in UTC; raises ValidationError that names it."""
    if not _QUARTER.fullmatch(quarter):
        raise ValidationError({"quarter": "Must be a quarter such as 2026-Q4."})
    year, number = int(quarter[:4]), int(quarter[-1])
    begins = datetime(year, MONTHS * (number - 1) + 1, 1, tzinfo=UTC)
    after = (year + 1, 1) if number == 4 else (year, begins.month + MONTHS)
    return begins, datetime(*after, 1, tzinfo=UTC)


def quarters_open(now: datetime) -> list[str]:
    """Those for which a worksheet may be kept: the present one and the next."""
    found = [quarter_of(now)]
    while len(found) <= QUARTERS_AHEAD:
        found.append(quarter_of(quarter_range(found[-1])[1]))
    return found


def revision_keep(
    *, actor: Actor, made: Worksheet, quarter: str, note: str, now: datetime
) -> WorksheetRevision:
    """Keep a worksheet as it is filled in; raises ValidationError that names the field."""
    require(actor, Action.FLEET_MANAGE)
    quarter_range(quarter)
    if quarter not in quarters_open(now):
        told = f"Must be one of {', '.join(quarters_open(now))}."
        raise ValidationError({"quarter": told})
    if made.sheet is None:
        raise ValidationError({"pool": "Nothing was measured in this pool yet."})
    if made.unread:
        names = (field.name for field in made.unread)
        raise ValidationError(dict.fromkeys(names, "Must be a number within its bounds."))
    if len(note) > NOTE_CHARS_MAX or not note.isprintable():
        raise ValidationError({"note": f"One line of at most {NOTE_CHARS_MAX} characters."})
    pool = made.measured.pool.name
    if WorksheetRevision.objects.filter(pool=pool).count() >= REVISIONS_MAX:
        raise ValidationError({"pool": f"There are {REVISIONS_MAX} revisions already."})
    with transaction.atomic():
        row = WorksheetRevision.objects.create(
            pool=pool,
            quarter=quarter,
            by=actor.actor_label,
            note=note,
            figures={field.name: field.value for field in made.fields},
            sheet=sheet_values(made.sheet),
        )
        detail: Facts = {"pool": pool, "quarter": quarter}
        audit_record(actor, "worksheet.keep", subject=row, organization_id=None, detail=detail)
    return row


def revision_list(*, actor: Actor, pool: str = "") -> list[WorksheetRevision]:
    """The newest, of one pool or of all."""
    require(actor, Action.FLEET_VIEW)
    rows = WorksheetRevision.objects.order_by("-id")
    return list((rows.filter(pool=pool) if pool else rows)[:SHOWN_MAX])


def revision_get(*, actor: Actor, revision_id: UUID) -> WorksheetRevision:
    """Raises ObjectDoesNotExist."""
    require(actor, Action.FLEET_VIEW)
    return WorksheetRevision.objects.get(id=revision_id)


def revision_compare(
    *, actor: Actor, revision: WorksheetRevision, now: datetime
) -> list[ComparedFigure]:
    """Beside what came in its quarter until now: of a rate that is the busiest hour's once the
    quarter is older than fifteen days. Raises TooMuchToRead."""
    start, end = quarter_range(revision.quarter)
    came: Mapping[str, float] = {}
    if start < now:
        end = min(end, whole_hours(1, now)[1])
        found = capacity_read(actor=actor, start=start, end=end)
        came = next((_came(one) for one in found if one.pool.name == revision.pool), {})
    return [
        ComparedFigure(name, label, unit, revision.figures[name], came.get(name))
        for name, label, unit, _, _ in FIGURES
        if name in revision.figures
    ]


def _came(measured: MeasuredLoad) -> dict[str, float]:
    load, engine = measured.load, measured.engine
    if load is None or engine is None:
        return {}
    return {
        "rate": load.per_s,
        "in": load.tokens_in,
        "out": load.tokens_out,
        "cached": HUNDRED * load.cached_share,
        "batch": engine.batch,
        "cold": engine.cold_start_s,
    }


def growth(*, actor: Actor, models: Iterable[str], now: datetime) -> float | None:
    """Requests of the last 28 days over those of the 28 before; None where either had none."""
    organizations = organization_names(actor=actor)
    _, end = whole_hours(1, now)
    names, counts = set(models), []
    for back in (0, 1):
        closes = end - back * GROWTH
        used = usage_by_model(organizations, start=closes - GROWTH, end=closes)
        counts.append(sum(used[name].requests for name in names & set(used)))
    return counts[0] / counts[1] if all(counts) else None
