"""The arithmetic of a document: lines in pico-USD, one sum in nano-USD, one rounding to cents.

Pure functions over integers; where lines come from is not known here.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from controlplane.kernel.money import PICO_PER_NANO

NANO_PER_CENT = 10_000_000
BASIS_POINTS = 10_000


class LineKind(StrEnum):
    USAGE = "usage"
    CORRECTION = "correction"
    ROUNDING = "rounding"
    PREPAID = "prepaid"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line. Of usage, `quantity` tokens at `unit_pico` are `amount_pico` exactly.

    `account` is the side of the ledger that is not the customer's, `entry` the journal's id of a
    correction; ids are hex, empty where there is none.
    """

    position: int
    kind: LineKind
    amount_pico: int
    words: str = ""
    account: str = ""
    entry: str = ""
    project: str = ""
    project_name: str = ""
    model: str = ""
    token_type: str = ""
    quantity: int = 0
    unit_pico: int = 0


class Totals(NamedTuple):
    subtotal_nano: int
    prepaid_nano: int
    net_cents: int
    tax_cents: int

    @property
    def total_cents(self) -> int:
        return self.net_cents + self.tax_cents


def half_even(value: int, unit: int) -> int:
    """`value / unit` rounded to the nearest whole number, ties to the even one."""
    whole, rest = divmod(value, unit)
    return whole + (2 * rest > unit or (2 * rest == unit and whole % 2 == 1))


def sum_pico(lines: Iterable[Line]) -> int:
    return sum(line.amount_pico for line in lines)


def document_totals(lines: Sequence[Line], tax_basis_points: int) -> Totals:
    """Totals of lines whose sum is a whole number of nano-USD; raises ValueError if it is not."""
    whole = sum_pico(lines)
    prepaid = -sum_pico(line for line in lines if line.kind == LineKind.PREPAID)
    if whole % PICO_PER_NANO or prepaid % PICO_PER_NANO:
        raise ValueError(f"lines come to {whole} pico-USD, of which {prepaid} were prepaid")
    due_nano = whole // PICO_PER_NANO
    net_cents = half_even(due_nano, NANO_PER_CENT)
    return Totals(
        subtotal_nano=due_nano + prepaid // PICO_PER_NANO,
        prepaid_nano=prepaid // PICO_PER_NANO,
        net_cents=net_cents,
        tax_cents=half_even(net_cents * tax_basis_points, BASIS_POINTS),
    )


def lines_json(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """As the document keeps them; what is empty is left out."""
    return [
        {name: value for name, value in msgspec.to_builtins(line).items() if value or name in _KEPT}
        for line in lines
    ]


def lines_read(kept: Any) -> list[Line]:
    return msgspec.convert(kept, list[Line])


_KEPT = ("position", "amount_pico")
