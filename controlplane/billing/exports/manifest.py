"""What proves that a file is whole: its rows, its sum, its hash, and what it was made from.

Nothing in it tells when or by whom, so a closed period's manifest is the same every time.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from controlplane.billing.cells import Cell, Column, time_text
from controlplane.billing.exports.models import ExportKind
from controlplane.billing.exports.spec import ExportSpec
from controlplane.billing.months.periods import Period, period_of, state_of
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import usd_text

FORMAT = "sluice-export/1"
FOCUS_VERSION = "1.3"


class Figures(NamedTuple):
    """Of a finished file; `rows` without the head, `nano` the sum of its amounts."""

    rows: int
    bytes: int
    nano: int
    sha256: str


def manifest_of(
    spec: ExportSpec, through: datetime, columns: Iterable[Column], figures: Figures
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **({"focus_version": FOCUS_VERSION} if spec.kind is ExportKind.FOCUS else {}),
        "kind": spec.kind.value,
        "grain": spec.grain.value,
        "organization": public_id("org", spec.organization),
        "start": time_text(spec.start),
        "end": time_text(spec.end),
        # Lines booked from here on are not in the file.
        "through": time_text(through),
        "complete": through >= spec.end,
        "periods": {
            month.name: state_of(spec.organization, month).value for month in _months(spec)
        },
        "currency": "USD",
        "rows": figures.rows,
        "amount_usd": usd_text(figures.nano),
        "amount_nano_usd": figures.nano,
        "bytes": figures.bytes,
        "sha256": figures.sha256,
        "formula_guard": not spec.raw,
        "columns": [{"name": one.name, "type": _type(one)} for one in columns],
    }


def _months(spec: ExportSpec) -> list[Period]:
    found = [period_of(spec.start)]
    while found[-1].end < spec.end:
        found.append(period_of(found[-1].end))
    return found


def _type(column: Column) -> str:
    return "text" if column.cell is Cell.FREE else column.cell.value
