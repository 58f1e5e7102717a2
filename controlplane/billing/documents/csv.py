"""A document as a CSV file: one row per line, then what was prepaid, rounding, tax and total.

Amounts add up: the rows before the total come to it exactly. Where credit is carried over, two more
follow: that, and what is due.
"""

from collections.abc import Iterator

from controlplane.billing.cells import (
    MICRO_PLACES,
    PICO_PLACES,
    Cell,
    Column,
    Value,
    decimal_text,
    head_line,
    line_writer,
)
from controlplane.billing.documents.lines import NANO_PER_CENT, lines_read
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.billing.documents.text import CARRIED, line_words, tax_words
from controlplane.kernel.ids import public_id
from controlplane.kernel.money import PICO_PER_NANO

COLUMNS = (
    Column("document", Cell.TEXT, "document number"),
    Column("period", Cell.TEXT, "billing month, UTC"),
    Column("line", Cell.NUMBER, "position; empty for totals"),
    Column("kind", Cell.TEXT, "usage, correction, rounding, prepaid, cents or another total"),
    Column("project_id", Cell.TEXT, "organization id"),
    Column("project", Cell.FREE, "organization name at issue"),
    Column("model", Cell.FREE, "of usage"),
    Column("token_type", Cell.TEXT, "uncached_input, cached_input or output"),
    Column("description", Cell.FREE, "in words"),
    Column("tokens", Cell.NUMBER, "of usage"),
    Column("usd_per_million_tokens", Cell.NUMBER, "exact price"),
    Column("amount_usd", Cell.NUMBER, "exact, twelve decimals"),
)


def invoice_csv(document: Invoice, *, raw: bool = False) -> str:
    """The whole file; `raw` leaves out the guard against formulas."""
    write = line_writer(COLUMNS, raw=raw)
    return head_line(COLUMNS) + "".join(write(row) for row in _rows(document))


def _rows(document: Invoice) -> Iterator[list[Value]]:
    for line in lines_read(document.lines):
        usage = bool(line.quantity)
        yield [
            *(document.title, document.period, line.position, line.kind.value),
            *(line.project and public_id("proj", line.project) or None, line.project_name or None),
            *(line.model or None, line.token_type or None, line_words(line)),
            line.quantity if usage else None,
            decimal_text(line.unit_pico, MICRO_PLACES) if usage else None,
            decimal_text(line.amount_pico, PICO_PLACES),
        ]
    if document.kind != DocumentKind.STATEMENT:
        yield _sum(document, "cents", "Rounding to whole cents", document.rounding_nano)
    if document.tax_basis_points:
        yield _sum(document, "tax", tax_words(document), document.tax_cents * NANO_PER_CENT)
    yield _sum(document, "total", "Total", document.total_cents * NANO_PER_CENT)
    if document.carried_cents:
        yield _sum(document, "carried", CARRIED, -document.carried_cents * NANO_PER_CENT)
        yield _sum(document, "due", "Due", document.asked_cents * NANO_PER_CENT)


def _sum(document: Invoice, kind: str, words: str, nano: int) -> list[Value]:
    amount = decimal_text(nano * PICO_PER_NANO, PICO_PLACES)
    blank: list[Value] = [None] * 4
    return [document.title, document.period, None, kind, *blank, words, None, None, amount]
