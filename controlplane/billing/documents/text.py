"""How documents say things, the same in the PDF file, in the CSV file and on the page."""

import re
from decimal import Decimal

from controlplane.billing.documents.lines import Line, LineKind
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.kernel.money import nano_from_usd

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


def usd_read(text: str) -> int:
    """Nano-USD of `$1,234.50` as people type it; raises ValueError on anything else."""
    plain = text.strip().removeprefix("$").replace(",", "")
    if _USD.fullmatch(plain) is None:
        raise ValueError(f"{text!r} is not an amount in US dollars")
    return nano_from_usd(plain)


def cents_text(cents: int) -> str:
    """1,234.56, with a minus before what is below zero."""
    whole, rest = divmod(abs(cents), CENTS_PER_USD)
    return f"{'-' if cents < 0 else ''}{whole:,}.{rest:02d}"


def pico_text(pico: int) -> str:
    """An exact amount in US dollars with all twelve decimals."""
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
    return "Due", f"Please pay by {document.due_on.isoformat()} and name {document.title}."
