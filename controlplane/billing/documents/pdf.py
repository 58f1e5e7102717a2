"""A document as a PDF file: A4, as many pages as its lines need, the same bytes at every print.

Names in Latin, Greek and Cyrillic letters are shown; of other scripts each letter is a mark.
"""

from datetime import UTC, datetime, time
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from fpdf import FPDF
from fpdf.enums import Align, XPos, YPos
from fpdf.fonts import TTFFont

from controlplane.billing.documents import text as texts
from controlplane.billing.documents.lines import Line, LineKind, lines_read, sum_pico
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.kernel.money import usd_text

FONT = "DejaVu"
FONTS = Path(__file__).parents[1] / "fonts"
MISSING = "\ufffd"
INK, MUTED, RULE, ACCENT = (26, 29, 33), (88, 96, 105), (220, 225, 231), (11, 87, 176)
LEFT, RIGHT, TOP, BOTTOM = 20.0, 190.0, 18.0, 272.0
QUANTITY_X, UNIT_X = 122.0, 150.0
ROW, BODY = 5.4, 9.0
# Characters of a description that fit; the CSV file and the page have the whole of it.
WORDS_WIDTH = 74.0
CENT_PLACES = 3
# From the middle of a row down to where letters stand, in sizes of the font.
BASELINE = 0.3
PAGES_WIDTH = 40.0
# Below the sums: what is due and how to pay it.
TOTALS_HEIGHT = 34.0


class Pen(NamedTuple):
    """Size in points, weight and colour of letters."""

    size: float = BODY
    style: str = ""
    ink: tuple[int, int, int] = INK


PLAIN = Pen()
BOLD = Pen(style="B")
FAINT = Pen(ink=MUTED)
SMALL = Pen(size=7.5, ink=MUTED)
HEAD = Pen(size=20, style="B")
NUMBER = Pen(size=12, style="B", ink=ACCENT)
DUE = Pen(size=13, style="B", ink=ACCENT)


def invoice_pdf(document: Invoice) -> bytes:
    lines = lines_read(document.lines)
    sheet = _Sheet(document)
    sheet.add_page()
    sheet.parties()
    sheet.line_rows(lines)
    sheet.totals()
    return bytes(sheet.output())


class _Sheet(FPDF):
    """The pages of one document; a place on a page is in millimetres from its upper left."""

    def __init__(self, document: Invoice) -> None:
        super().__init__()
        self._document = document
        self.set_creation_date(datetime.combine(document.issued_on, time(), UTC))
        self.set_title(f"{texts.TITLES[DocumentKind(document.kind)]} {document.title}")
        self.set_author(document.issuer["name"])
        self.set_auto_page_break(False)
        self.set_margins(LEFT, TOP, 210 - RIGHT)
        for style, file in (("", ""), ("B", "-Bold")):
            self.add_font(FONT, style, FONTS / f"DejaVuSansCondensed{file}.ttf")
        # Code points that both weights can show.
        self._letters = self._code_points("") & self._code_points("B") | {ord("\n")}

    def header(self) -> None:
        if self.page_no() == 1:
            self._say(LEFT, TOP, texts.TITLES[DocumentKind(self._document.kind)], HEAD)
            self._say(LEFT, TOP + 9, self._document.title, NUMBER)
            self.set_y(TOP + 20)
        else:
            self._say(LEFT, TOP, self._document.title, NUMBER)
            self._say_right(RIGHT, TOP, self._document.customer["name"], FAINT)
            self.set_y(TOP + 9)

    def footer(self) -> None:
        issuer = self._document.issuer
        parts = (issuer["name"], issuer["tax_id"], issuer["email"])
        self._rule(BOTTOM + 6)
        self._say(LEFT, BOTTOM + 7.5, " · ".join(filter(None, parts)), SMALL)
        # How many pages there are is known at the end: only a cell fills it in.
        self._take(SMALL)
        self.set_xy(RIGHT - PAGES_WIDTH, BOTTOM + 7.5)
        self.cell(PAGES_WIDTH, ROW, f"Page {self.page_no()} of {{nb}}", align=Align.R)

    def parties(self) -> None:
        document, top = self._document, self.get_y()
        ends = [
            self._party(LEFT, top, "From", document.issuer),
            self._party(LEFT + 62, top, "To", document.customer),
        ]
        facts = [("Number", document.title), ("Period", document.period)]
        if document.number:
            facts.append(("Issued", document.issued_on.isoformat()))
        if document.number and document.kind == DocumentKind.INVOICE:
            facts.append(("Due", document.due_on.isoformat()))
        if document.corrects is not None:
            facts.append(("Corrects", document.corrects.title))
        y = top
        for name, value in facts:
            self._say(146, y, name, FAINT)
            self._say_right(RIGHT, y, value, BOLD)
            y += ROW
        self.set_y(max(*ends, y) + 7)
        if document.reason:
            self._take(PLAIN)
            self.multi_cell(RIGHT - LEFT, ROW, self._shown(f"Reason: {document.reason}"), align="L")
            self.set_y(self.get_y() + 3)

    def line_rows(self, lines: list[Line]) -> None:
        self._table_head()
        usage = [line for line in lines if line.kind == LineKind.USAGE]
        for name, group in groupby(usage, key=lambda line: line.project_name):
            members = list(group)
            self._room(3 * ROW)
            y = self.get_y() + 1.2
            self._say(LEFT, y, name or "Without a project", BOLD, width=WORDS_WIDTH)
            self._amount(y, sum_pico(members), BOLD)
            self.set_y(y + ROW)
            for line in members:
                self._line(line)
        rest = [line for line in lines if line.kind != LineKind.USAGE]
        if rest and usage:
            self.set_y(self.get_y() + 1.6)
        for line in rest:
            self._line(line)
        self._rule(self.get_y() + 1.5)
        self.set_y(self.get_y() + 4)

    def totals(self) -> None:
        document = self._document
        note = document.kind == DocumentKind.CREDIT_NOTE
        head = "Credited (exact)" if note else "Charges on the ledger"
        rows = [(head, usd_text(document.subtotal_nano))]
        if document.prepaid_nano:
            rows.append(("Paid from the prepaid balance", usd_text(-document.prepaid_nano)))
        if document.kind != DocumentKind.STATEMENT:
            rows.append(("Rounding to whole cents", usd_text(document.rounding_nano)))
            rows.append(("Net", texts.cents_text(document.net_cents)))
            if document.tax_basis_points:
                rows.append((texts.tax_words(document), texts.cents_text(document.tax_cents)))
            if document.carried_cents:
                rows.append((texts.CARRIED, texts.cents_text(-document.carried_cents)))
        if self.get_y() + len(rows) * ROW + TOTALS_HEIGHT > BOTTOM:
            self.add_page()
        y = self.get_y()
        for name, value in rows:
            self._say(112, y, name, FAINT)
            self._say_right(RIGHT, y, value)
            y += ROW
        self._rule(y + 0.8, left=112)
        self._say(112, y + 3, texts.due_words(document)[0], BOLD)
        due = 0 if document.kind == DocumentKind.STATEMENT else document.asked_cents
        self._say_right(RIGHT, y + 3, f"USD {texts.cents_text(due)}", DUE)
        self.set_xy(LEFT, y + 14)
        self._take(FAINT)
        told = "\n".join(
            filter(None, (texts.due_words(document)[1], document.issuer.get("pay_to", "")))
        )
        self.multi_cell(RIGHT - LEFT, ROW, self._shown(told), align="L")

    def _party(self, x: float, y: float, head: str, party: dict[str, str]) -> float:
        self._say(x, y, head, SMALL)
        self._say(x, y + 4, party["name"], BOLD, width=58)
        rows = [*party["address"].split("\n"), party["tax_id"], party["email"]]
        self.set_xy(x, y + 4 + ROW)
        self._take(PLAIN)
        for row in filter(None, rows):
            self.set_x(x)
            self.multi_cell(58, 4.6, self._shown(row), align="L", new_x=XPos.LEFT, new_y=YPos.NEXT)
        return self.get_y()

    def _table_head(self) -> None:
        y = self.get_y()
        self._say(LEFT, y, "Description", SMALL)
        self._say_right(QUANTITY_X, y, "Tokens", SMALL)
        self._say_right(UNIT_X, y, "USD per 1M tokens", SMALL)
        self._say_right(RIGHT, y, "Amount, USD", SMALL)
        self._rule(y + 5)
        self.set_y(y + 6)

    def _line(self, line: Line) -> None:
        self._room(ROW)
        y = self.get_y()
        usage = line.kind == LineKind.USAGE
        self._say(LEFT + 3 * usage, y, texts.line_words(line), width=WORDS_WIDTH if usage else 122)
        if usage:
            self._say_right(QUANTITY_X, y, f"{line.quantity:,}")
            self._say_right(UNIT_X, y, texts.unit_text(line.unit_pico))
        self._amount(y, line.amount_pico)
        self.set_y(y + ROW)

    def _amount(self, y: float, pico: int, pen: Pen = PLAIN) -> None:
        """Whole cents in ink, what is finer beside them in grey; digits stand below each other."""
        text = texts.pico_text(pico)
        cut = text.index(".") + CENT_PLACES
        self._say_right(RIGHT, y, text[cut:], FAINT)
        self.set_font(FONT, "", BODY)
        self._say_right(RIGHT - self.get_string_width(text[cut:]), y, text[:cut], pen)

    def _room(self, height: float) -> None:
        if self.get_y() + height > BOTTOM:
            self.add_page()
            self._table_head()

    def _rule(self, y: float, left: float = LEFT) -> None:
        self.set_draw_color(*RULE)
        self.set_line_width(0.25)
        self.line(left, y, RIGHT, y)

    def _say(
        self, x: float, y: float, text: str, pen: Pen = PLAIN, *, width: float | None = None
    ) -> None:
        """Text from `x` on, cut where it is wider than `width`."""
        self._take(pen)
        shown = self._shown(text)
        if width is not None and self.get_string_width(shown) > width:
            while shown and self.get_string_width(shown + "…") > width:
                shown = shown[:-1]
            shown += "…"
        self._put(x, y, shown)

    def _say_right(self, x: float, y: float, text: str, pen: Pen = PLAIN) -> None:
        self._take(pen)
        shown = self._shown(text)
        self._put(x - self.get_string_width(shown), y, shown)

    def _put(self, x: float, y: float, text: str) -> None:
        """Text in the middle of a row that begins at `y`: many times faster than a cell."""
        if text:
            self.text(x, y + ROW / 2 + BASELINE * self.font_size, text)

    def _shown(self, text: str) -> str:
        return "".join(one if ord(one) in self._letters else MISSING for one in text)

    def _code_points(self, style: str) -> frozenset[int]:
        font = self.fonts[f"{FONT.lower()}{style}"]
        return frozenset(font.cmap) if isinstance(font, TTFFont) else frozenset()

    def _take(self, pen: Pen) -> None:
        self.c_margin = 0
        self.set_font(FONT, pen.style, pen.size)
        self.set_text_color(*pen.ink)
