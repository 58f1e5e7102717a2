"""Writes one export a stretch at a time: read a page, append it, and now and then count it as sure.

Memory holds one page, whatever the file grows to.
"""

import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from controlplane.billing.cells import Cell, Column, head_line, time_text
from controlplane.billing.exports.files import ExportFile, FileBusy, FileLost, open_export
from controlplane.billing.exports.kinds import pages_of, rows_estimated, scope_of, through_of
from controlplane.billing.exports.models import Export, ExportGrain, ExportKind, ExportState
from controlplane.billing.exports.pages.scope import Pages
from controlplane.billing.exports.services import DueExport, export_claim, export_fail, export_save
from controlplane.billing.exports.spec import ExportSpec
from controlplane.billing.months.periods import Period, period_of, state_of
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import usd_text
from controlplane.telemetry.reading import TooMuchToRead

FORMAT = "sluice-export/1"
FOCUS_VERSION = "1.3"


def manifest_of(
    spec: ExportSpec, through: datetime, columns: Iterable[Column], export: Export
) -> dict[str, Any]:
    """What is told of a finished file; its rows are those without the head."""
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
        "rows": export.rows_done,
        "amount_usd": usd_text(export.nano),
        "amount_nano_usd": export.nano,
        "bytes": export.bytes_done,
        "sha256": export.sha256,
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


# A task ends within its time limit, and leaves the worker to others now and then.
STRETCH_S_MAX = 60.0
# What is written between two counts: at most this much, or for this long.
CHECK_BYTES = 4 << 20
CHECK_S = 2.0
FILE_BYTES_MAX = 16 << 30
PROGRESS = ("rows_done", "bytes_done", "nano", "cursor", "permille")


def export_write(due: DueExport) -> bool:
    """Go on with an export; returns whether more is to be done by whoever is called next."""
    export = export_claim(due)
    if export is None:
        return False
    try:
        with open_export(export.id) as file:
            return _Stretch(export, file).run()
    except FileBusy:
        # A paused worker still has it: its next count fails, and then the file is free.
        return False
    except TooMuchToRead:
        export_fail(export, "The database query timed out. Select fewer days.")
    except OSError as error:
        export_fail(export, f"The file could not be written: {error.strerror or error}")
    return False


def stream_lines(spec: ExportSpec, through: datetime) -> Iterator[str]:
    """The same file without a job: a text for the head, then one for each page."""
    return lines_of(pages_of(spec, scope_of(spec, through)))


def lines_of(pages: Pages) -> Iterator[str]:
    """All of a file's text: its head, then a text for each page."""
    yield head_line(pages.columns)
    cursor: str | None = ""
    while cursor is not None:
        page = pages.page(cursor)
        cursor = page.cursor
        if page.lines:
            yield "".join(page.lines)


def spec_from(export: Export) -> ExportSpec:
    return ExportSpec(
        organization=export.organization_id,
        kind=ExportKind(export.kind),
        start=export.start,
        end=export.end,
        grain=ExportGrain(export.grain),
        raw=export.raw,
    )


class _Stretch:
    def __init__(self, export: Export, file: ExportFile) -> None:
        self._export = export
        self._file = file
        self._spec = spec_from(export)

    def run(self) -> bool:
        """Write until the end or for the stretch; returns whether there is more."""
        export = self._export
        if export.through is None:
            export.through = through_of(self._spec)
            export.rows_estimated = rows_estimated(self._spec, export.through)
            if not export_save(export, "through", "rows_estimated"):
                return False
        pages = pages_of(self._spec, scope_of(self._spec, export.through))
        self._take_up(pages)
        return self._write(pages)

    def _take_up(self, pages: Pages) -> None:
        export = self._export
        try:
            self._file.go_on_at(export.bytes_done)
        except FileLost:
            export.rows_done = export.bytes_done = export.nano = 0
            export.cursor = ""
            self._file.go_on_at(0)
        if export.bytes_done == 0:
            self._file.write(head_line(pages.columns).encode())

    def _write(self, pages: Pages) -> bool:
        export, ends, checked = self._export, time.monotonic() + STRETCH_S_MAX, time.monotonic()
        while True:
            page = pages.page(export.cursor)
            if page.lines:
                self._file.write("".join(page.lines).encode())
            export.rows_done += len(page.lines)
            export.nano += page.nano
            if page.cursor is None:
                return self._finish(pages)
            export.cursor, export.permille = page.cursor, int(1_000 * page.share)
            if self._file.size > FILE_BYTES_MAX:
                export_fail(export, f"The file would be larger than {FILE_BYTES_MAX:,} bytes.")
                return False
            now = time.monotonic()
            if self._file.size - export.bytes_done < CHECK_BYTES and now - checked < CHECK_S:
                continue
            checked, over = now, now > ends
            if not self._count(release=over):
                return False
            if over:
                return True

    def _count(self, *, release: bool) -> bool:
        """Make sure of what is written; False where the claim is lost."""
        self._file.flush()
        self._export.bytes_done = self._file.size
        return export_save(self._export, *PROGRESS, release=release)

    def _finish(self, pages: Pages) -> bool:
        self._file.flush()
        export = self._export
        export.bytes_done, export.permille, export.cursor = self._file.size, 1_000, ""
        export.sha256, export.state = self._file.digest, ExportState.DONE
        assert export.through is not None
        export.manifest = manifest_of(self._spec, export.through, pages.columns, export)
        export_save(export, *PROGRESS, "sha256", "state", "manifest", "finished_at", release=True)
        return False
