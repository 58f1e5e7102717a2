"""How values stand in our CSV files: text in quotes, numbers and times bare, null as nothing.

So a null is never mistaken for an empty text, and no reader takes an id for a number.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

LINE_END = "\r\n"
# Cells that begin so are formulas to spreadsheets, in full width too.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
MICRO_PLACES, NANO_PLACES, PICO_PLACES = 6, 9, 12
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{6})?Z)?")


class Cell(Enum):
    """What a column holds."""

    # Words that people chose, such as names: guarded against formulas unless the file is raw.
    FREE = "text, guarded"
    # Ids and words of a closed list, which begin with a letter or digit.
    TEXT = "text"
    NUMBER = "number"
    TIME = "time"


class Column(NamedTuple):
    """One column of a file; `says` is its line in docs/exports.md."""

    name: str
    cell: Cell
    says: str


Value = str | int | None


def columns(table: str) -> tuple[Column, ...]:
    """Columns from a line for each: its name, the kind of cell, and what it says."""
    rows = (line.split(maxsplit=2) for line in table.strip().splitlines())
    return tuple(Column(name, Cell[cell.upper()], says) for name, cell, says in rows)


def head_line(columns: Iterable[Column]) -> str:
    return ",".join(column.name for column in columns) + LINE_END


def line_writer(columns: Sequence[Column], *, raw: bool) -> Callable[[Sequence[Value]], str]:
    """A function from the values of a row, in the order of the columns, to its line."""
    makers = [_makers(raw)[column.cell] for column in columns]

    def write(values: Sequence[Value]) -> str:
        cells = [
            "" if value is None else make(value) for make, value in zip(makers, values, strict=True)
        ]
        return ",".join(cells) + LINE_END

    return write


def decimal_text(value: int, places: int) -> str:
    """A whole number of the smallest unit as plain decimal text with so many places."""
    sign, digits = ("-", -value) if value < 0 else ("", value)
    whole, rest = divmod(digits, 10**places)
    return f"{sign}{whole}.{rest:0{places}d}"


def time_text(moment: datetime) -> str:
    """Whole seconds in UTC, as FOCUS writes them."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant_text(moment: datetime) -> str:
    """To the microsecond in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA_STARTS) else text


def _quoted(value: Value) -> str:
    return '"' + str(value).replace('"', '""') + '"'


def _free(value: Value) -> str:
    return _quoted(guarded(str(value)))


def _makers(raw: bool) -> dict[Cell, Callable[[Value], str]]:
    return {
        Cell.FREE: _quoted if raw else _free,
        Cell.TEXT: _quoted,
        Cell.NUMBER: str,
        Cell.TIME: str,
    }
