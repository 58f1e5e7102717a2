"""Panels that are tables, and any panel as CSV: the figures on screen, of the same question."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.http import Http404, HttpResponse

from controlplane.billing.cells import Column, Value, guarded, head_line, line_writer
from frontend.shared.plots.figure import TIME_HEAD, Panel


@dataclass(frozen=True)
class TablePanel:
    """A table that is drawn by the page itself; `words` is its last column where that is text."""

    name: str
    title: str
    head: list[str]
    body: list[list[str]]
    words: str = ""

    def rows(self) -> list[list[str]]:
        return self.body

    @property
    def shown(self) -> list[list[tuple[str, str]]]:
        """Each cell with its column's name, which it says itself on a phone."""
        return [
            [(head, _readable(text) if place else text) for place, (head, text) in enumerate(pairs)]
            for pairs in (zip(self.head, row, strict=True) for row in self.body)
        ]


def panel_csv(panels: Iterable[Panel], name: str) -> HttpResponse:
    """One panel as a file; raises Http404 where there is none of that name."""
    found = next((panel for panel in panels if panel.name == name), None)
    if found is None:
        raise Http404
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="sluice-{name}.csv"'
    writer = csv.writer(response)
    writer.writerow(found.head)
    rows = found.rows()
    if found.head[0] == TIME_HEAD:
        rows = [[f"{first.replace(' ', 'T')}Z", *rest] for first, *rest in rows]
    writer.writerows([_safe(text) for text in row] for row in rows)
    return response


def columns_csv(
    columns: Sequence[Column], rows: Iterable[Sequence[Value]], file: str
) -> HttpResponse:
    write = line_writer(columns, raw=False)
    response = HttpResponse(
        head_line(columns) + "".join(write(row) for row in rows),
        content_type="text/csv; charset=utf-8",
    )
    response["Content-Disposition"] = f'attachment; filename="{file}.csv"'
    return response


def _readable(text: str) -> str:
    return f"{int(text):,}" if text.isascii() and text.isdecimal() else text


def _safe(text: str) -> str:
    """A number may begin with a minus; words that people chose may not look like a formula."""
    try:
        float(text)
    except ValueError:
        return guarded(text)
    return text
