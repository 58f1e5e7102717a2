"""Exports of the seeded month for tests: a file made by the job, or its lines read back."""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Iterable
from datetime import date

from controlplane.billing.exports.files import read_export
from controlplane.billing.exports.kinds import through_of
from controlplane.billing.exports.models import Export
from controlplane.billing.exports.services import DueExport, export_create
from controlplane.billing.exports.spec import ExportSpec, spec_of
from controlplane.billing.exports.writer import export_write, stream_lines
from controlplane.core.permissions import organization_scope
from tests.support.month import END, START
from tests.support.people import Cast

Rows = list[dict[str, str]]


def month_spec(
    organization: uuid.UUID, kind: str, *, grain: str = "", raw: bool = False
) -> ExportSpec:
    """The seeded month."""
    return spec_of(
        organization, kind=kind, start=START.date(), end=END.date(), grain=grain, raw=raw
    )


def days_spec(organization: uuid.UUID, kind: str, start: date, end: date) -> ExportSpec:
    """Some days, in the kind's usual grain."""
    return spec_of(organization, kind=kind, start=start, end=end)


def asked_for(cast: Cast, spec: ExportSpec) -> DueExport:
    """Ask for an export as Alice or Charlie, each in the own organization; no task is sent."""
    actor = cast.alice if spec.organization == cast.acme.id else cast.charlie
    made = export_create(actor=actor, spec=spec, enqueue=lambda organization, export: None)
    return DueExport(spec.organization, made.id)


def export_row(due: DueExport) -> Export:
    """The row as it is now."""
    with organization_scope([due.organization]):
        return Export.objects.get(id=due.export)


def made_by_job(cast: Cast, spec: ExportSpec) -> tuple[Export, bytes]:
    """The finished row and its file."""
    due = asked_for(cast, spec)
    while export_write(due):
        continue
    return export_row(due), b"".join(read_export(due.export))


def streamed(spec: ExportSpec) -> bytes:
    """The file without a job."""
    return "".join(stream_lines(spec, through_of(spec))).encode()


def rows_of(data: bytes) -> Rows:
    """Lines by the names of the head; nulls are empty."""
    return list(csv.DictReader(io.StringIO(data.decode(), newline=""), strict=True))


def nano_of(rows: Iterable[dict[str, str]], column: str = "amount_nano_usd") -> int:
    """The sum of a column of whole numbers."""
    return sum(int(row[column]) for row in rows)
