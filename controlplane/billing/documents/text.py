"""How documents say things, the same in the PDF file, in the CSV file and on the page; and the CSV
file: one row per line, then what was prepaid, rounding, tax and total.

Amounts add up: the rows before the total come to it exactly. Where credit is carried over, two more
follow: that, and what is due.
"""

import re
from collections.abc import Iterator
from decimal import Decimal

from controlplane.billing import cells
from controlplane.billing.documents.lines import NANO_PER_CENT, Line, LineKind, lines_read
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import PICO_PER_NANO, nano_from_usd

PICO_PLACES = 12
UNIT_PLACES = 6
CENTS_PER_USD = 100
CARRIED = "Credit carried over from earlier invoices"
TITLES = {
    DocumentKind.INVOICE: "Invoice",
    DocumentKind.STATEMENT: "Statement",
    DocumentKind.CREDIT_NOTE: "Credit note",
}
TOKEN_TYPES = {
    "uncached_input": "input tokens",
    "cached_input": "cached input tokens",
    "output": "output tokens",
}


_USD = re.compile(r"[0-9]{1,10}(\.[0-9]{1,9})?", re.ASCII)
COLUMNS = cells.columns("""
    document               text   document number
    period                 text   billing month, UTC
    line                   number position; empty for totals
    kind                   text   usage, correction, rounding, prepaid, cents or another total
    project_id             text   organization id
    project                free   organization name at issue
    model                  free   of usage
    token_type             text   uncached_input, cached_input or output
    description            free   in words
    tokens                 number of usage
    usd_per_million_tokens number exact price
    amount_usd             number exact, twelve decimals
""")


def usd_read(text: str) -> int:
    """Nano-USD of `$1,234.50` as people type it; raises ValueError on anything else."""
    plain = text.strip().removeprefix("$").replace(",", "")
    if _USD.fullmatch(plain) is None:
        raise ValueError(f"{text!r} is not an amount in US dollars")
    return nano_from_usd(plain)


def cents_text(cents: int) -> str:
    whole, rest = divmod(abs(cents), CENTS_PER_USD)
    return f"{'-' if cents < 0 else ''}{whole:,}.{rest:02d}"


def pico_text(pico: int) -> str:
    return f"{Decimal(pico).scaleb(-PICO_PLACES):,.{PICO_PLACES}f}"


def unit_text(unit_pico: int) -> str:
    """A price in US dollars per million tokens, exact, with at least two decimals."""
    text = f"{Decimal(unit_pico).scaleb(-UNIT_PLACES):,.{UNIT_PLACES}f}"
    return text.rstrip("0") + "0" * max(0, 2 - len(text.rstrip("0").partition(".")[2]))


def line_words(line: Line) -> str:
    if line.kind == LineKind.USAGE:
        return f"{line.model}, {TOKEN_TYPES[line.token_type]}"
    return line.words


def tax_words(document: Invoice) -> str:
    percent = Decimal(document.tax_basis_points).scaleb(-2).normalize()
    return f"Tax {document.tax_jurisdiction}, {percent:f} %"


def due_words(document: Invoice) -> tuple[str, str]:
    """What the last sum is called, and a sentence on what to do about it."""
    if document.kind == DocumentKind.STATEMENT:
        return "Due", "Paid in full from the prepaid balance; nothing is due."
    if document.kind == DocumentKind.CREDIT_NOTE:
        return "Credited", "It is offset against your balance due."
    if document.total_cents <= 0:
        return "Total", "Nothing is due; the negative amount is kept as credit."
    if document.asked_cents == 0:
        return "Due", "Nothing is due: credit carried over covers the total."
    if not document.number:
        return "Due", "This is a preview, not an invoice: do not pay it."
    return "Due", f"Please pay by {document.due_on.isoformat()} and name {document.title}."


def invoice_csv(document: Invoice, *, raw: bool = False) -> str:
    """The whole file; `raw` leaves out the guard against formulas."""
    write = cells.line_writer(COLUMNS, raw=raw)
    return cells.head_line(COLUMNS) + "".join(write(row) for row in _rows(document))


def _rows(document: Invoice) -> Iterator[list[cells.Value]]:
    for line in lines_read(document.lines):
        usage = bool(line.quantity)
        yield [
            *(document.title, document.period, line.position, line.kind.value),
            *(line.project and public_id("proj", line.project) or None, line.project_name or None),
            *(line.model or None, line.token_type or None, line_words(line)),
            line.quantity if usage else None,
            cells.decimal_text(line.unit_pico, cells.MICRO_PLACES) if usage else None,
            cells.decimal_text(line.amount_pico, cells.PICO_PLACES),
        ]
    if document.kind != DocumentKind.STATEMENT:
        yield _sum(document, "cents", "Rounding to whole cents", document.rounding_nano)
    if document.tax_basis_points:
        yield _sum(document, "tax", tax_words(document), document.tax_cents * NANO_PER_CENT)
    yield _sum(document, "total", "Total", document.total_cents * NANO_PER_CENT)
    if document.carried_cents:
        yield _sum(document, "carried", CARRIED, -document.carried_cents * NANO_PER_CENT)
        yield _sum(document, "due", "Due", document.asked_cents * NANO_PER_CENT)


def _sum(document: Invoice, kind: str, words: str, nano: int) -> list[cells.Value]:
    amount = cells.decimal_text(nano * PICO_PER_NANO, cells.PICO_PLACES)
    blank: list[cells.Value] = [None] * 4
    return [document.title, document.period, None, kind, *blank, words, None, None, amount]
