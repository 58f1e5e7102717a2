"""The stage map as a PDF file: A4 across, one table, the same cells as page and Markdown."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from fpdf import FPDF
from fpdf.enums import TableBordersLayout
from fpdf.fonts import FontFace

from controlplane import billing
from controlplane.insights.stage_map import MapRow
from frontend.insights.stage_map import HEAD, cells_of

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
