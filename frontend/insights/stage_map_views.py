"""The seven-stage map beside public budgets, as page, Markdown, PDF and CSV."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from fpdf import FPDF
from fpdf.enums import TableBordersLayout
from fpdf.fonts import FontFace

from controlplane import billing
from controlplane.core.permissions import Action
from controlplane.insights.sampled import coarse_s
from controlplane.insights.stage_map import MapRow, stage_map_read
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.tiers import step_floor
from frontend.insights.days import DAYS, DaysAsked, change, days_asked
from frontend.shared import formats
from frontend.shared.access import Viewer, page, show
from frontend.shared.panels import TablePanel, panel_csv
from frontend.shared.stages import LABELS, STAGE_NAMES

HEAD = ("Stage", "Layer", "What", "p50", "p95", "n", "Public budget", "p95 of budget")
TITLE = "The seven stages"
FIGURES_FROM = 3
COMPARED = ("p50", "p95", "n")
FORMS = frozenset({"md", "pdf", "csv"})
CSV_BEFORE = ["requests_before", "p50_us_before", "p95_us_before"]
CSV_HEAD = ["span", "what", "requests", "p50_us", "p95_us", "public_budget_us"]


def cells_of(row: MapRow) -> tuple[str, ...]:
    """One row in words, as all three forms show it."""
    number = STAGE_NAMES.index(row.stage) + 1 if row.stage in STAGE_NAMES else None
    stage = row.what if number is None else f"{number} {LABELS[row.stage]}"
    return (
        "" if row.layer else stage,
        row.layer,
        row.what if number is not None else "",
        _trusted(50, row.p50_us, row.count),
        _trusted(95, row.p95_us, row.count),
        f"{row.count:,}",
        formats.MISSING if row.budget_us is None else formats.duration(row.budget_us),
        beside(row),
    )


def beside(row: MapRow) -> str:
    """p95 as a part of the public budget, where there are enough requests to say."""
    if row.budget_us is None or row.p95_us is None or formats.few(95, row.count):
        return formats.MISSING
    return formats.percent(row.p95_us, row.budget_us)


def stage_map_markdown(rows: Iterable[MapRow], *, title: str, note: str) -> str:
    lines = [f"# {title}", "", note, "", _line(HEAD), _line("---" for _ in HEAD)]
    return "\n".join([*lines, *(_line(cells_of(row)) for row in rows)]) + "\n"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _trusted(percent: int, value_us: float | None, count: int) -> str:
    text = formats.duration(value_us)
    return f"({text})" if value_us is not None and formats.few(percent, count) else text


FONT = "DejaVu"
# The fonts that invoices are set in.
FONTS = Path(billing.__file__).parent / "fonts"
INK, MUTED = (26, 29, 33), (88, 96, 105)
RULE, STAGE_FILL = (220, 225, 231), (238, 241, 245)
TITLE_SIZE, BODY_SIZE = 16.0, 8.0
MARGIN = 14.0
WIDTHS = (30, 22, 92, 24, 24, 20, 26, 24)
RIGHT_FROM = 3


def stage_map_pdf(rows: Iterable[MapRow], *, title: str, note: str, at: datetime) -> bytes:
    """The file; the same bytes for the same rows and time."""
    sheet = FPDF(orientation="landscape")
    sheet.set_creation_date(at)
    sheet.set_title(title)
    sheet.set_margin(MARGIN)
    for style, file in (("", ""), ("B", "-Bold")):
        sheet.add_font(FONT, style, FONTS / f"DejaVuSansCondensed{file}.ttf")
    sheet.add_page()
    sheet.set_text_color(*INK)
    sheet.set_font(FONT, "B", TITLE_SIZE)
    sheet.cell(0, 9, title, new_x="LMARGIN", new_y="NEXT")
    sheet.set_font(FONT, "", BODY_SIZE)
    sheet.set_text_color(*MUTED)
    sheet.multi_cell(0, 4.5, note, new_x="LMARGIN", new_y="NEXT")
    sheet.ln(3)
    sheet.set_text_color(*INK)
    sheet.set_draw_color(*RULE)
    _table(sheet, rows)
    return bytes(sheet.output())


def _table(sheet: FPDF, rows: Iterable[MapRow]) -> None:
    aligns = tuple("LEFT" if place < RIGHT_FROM else "RIGHT" for place in range(len(HEAD)))
    with sheet.table(
        col_widths=WIDTHS,
        text_align=aligns,
        line_height=4.6,
        borders_layout=TableBordersLayout.HORIZONTAL_LINES,
        headings_style=FontFace(emphasis="BOLD", color=INK, fill_color=(255, 255, 255)),
    ) as table:
        table.row(HEAD)
        for row in rows:
            style = None if row.layer else FontFace(emphasis="BOLD", fill_color=STAGE_FILL)
            table.row(cells_of(row), style=style)


@dataclass(frozen=True)
class ShownRow:
    """A row of the table, beside itself in the days before where they are compared."""

    row: MapRow
    earlier: MapRow | None

    @property
    def cells(self) -> list[tuple[str, str, str]]:
        named = list(zip(HEAD, cells_of(self.row), strict=True))[FIGURES_FROM:]
        before = self._before()
        return [(name, text, before.get(name, "")) for name, text in named]

    def _before(self) -> dict[str, str]:
        row, earlier = self.row, self.earlier
        if earlier is None:
            return {}
        figures = zip(HEAD, cells_of(earlier), strict=True)
        words = {name: text for name, text in figures if name in COMPARED}
        for name, now, was in (
            ("p50", row.p50_us, earlier.p50_us),
            ("p95", row.p95_us, earlier.p95_us),
            ("n", row.count, earlier.count),
        ):
            words[name] = f"before: {words[name]}{change(now or 0, was or 0) if now else ''}"
        return words

    @property
    def number(self) -> str:
        stage = self.row.stage
        return f"{STAGE_NAMES.index(stage) + 1} " if stage in STAGE_NAMES else ""

    @property
    def over(self) -> bool:
        """Whether p95 is above the public budget, with enough requests to say so."""
        budget_us, p95_us = self.row.budget_us, self.row.p95_us
        if budget_us is None or p95_us is None or formats.few(95, self.row.count):
            return False
        return p95_us > budget_us


@page("insights/stages", Action.ORGANIZATION_VIEW, "GET", shared=True)
def stage_map(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    asked = days_asked(request.GET, timezone.now())
    pairs = _read_pairs(asked)
    context = {
        "tab": "stage_map",
        "asked": asked,
        "days": asked.days,
        "day_choices": DAYS,
        "complaint": asked.complaint,
        "head": HEAD,
        "rows": None if pairs is None else [ShownRow(*pair) for pair in pairs],
        "count": max((row.count for row, _ in pairs or []), default=0),
        "now": timezone.now(),
    }
    return show(request, viewer, "insights", "insights/stage_map.html", context)


@page("insights/stages.<slug:form>", Action.ORGANIZATION_VIEW, "GET", shared=True)
def stage_map_file(request: HttpRequest, viewer: Viewer, form: str) -> HttpResponse:
    if form not in FORMS:
        raise Http404
    now = timezone.now()
    asked = days_asked(request.GET, now)
    pairs = _read_pairs(asked)
    if pairs is None:
        told = "The query timed out."
        return HttpResponse(told, status=503, content_type="text/plain; charset=utf-8")
    if form == "csv":
        head = CSV_HEAD + CSV_BEFORE if asked.compare else CSV_HEAD
        body = [_figures(*pair, compare=asked.compare) for pair in pairs]
        return panel_csv([TablePanel("stages", TITLE, head, body)], "stages")
    rows, note = [row for row, _ in pairs], _note(asked.days, now)
    if form == "pdf":
        # Not above: its library takes a sixth of the start of all who know the URLs.
        from frontend.insights.stage_map_views import stage_map_pdf

        data: bytes | str = stage_map_pdf(rows, title=TITLE, note=note, at=now)
        response = HttpResponse(data, content_type="application/pdf")
    else:
        data = stage_map_markdown(rows, title=TITLE, note=note)
        response = HttpResponse(data, content_type="text/markdown; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="sluice-stages.{form}"'
    return response


def _read_pairs(asked: DaysAsked) -> list[tuple[MapRow, MapRow | None]] | None:
    """Each row of the days and, if asked, of the days before; None where they are too many."""
    try:
        rows = stage_map_read(start=asked.start, end=asked.end)
        if not asked.compare:
            return [(row, None) for row in rows]
        # The days begin on a whole step, so those before end there: no request is in both.
        cut = step_floor(asked.start, coarse_s(asked.end - asked.start))
        earlier = stage_map_read(start=cut - (asked.end - asked.start), end=cut)
    except TooMuchToRead:
        return None
    return list(zip(rows, earlier, strict=True))


def _note(days: int, now: datetime) -> str:
    return (
        f"Measured on this deployment over the last {days} days up to {now:%Y-%m-%d %H:%M} UTC,"
        " requests of all tenants; in brackets: low sample. Budgets are from published reports of "
        "production systems."
    )


def _figures(row: MapRow, earlier: MapRow | None, *, compare: bool) -> list[str]:
    line = [row.name, row.what, str(row.count), *_us(row.p50_us, row.p95_us, row.budget_us)]
    if compare and earlier is not None:
        line += [str(earlier.count), *_us(earlier.p50_us, earlier.p95_us)]
    return line


def _us(*figures: float | None) -> list[str]:
    return ["" if figure is None else f"{figure:.0f}" for figure in figures]
