"""What commands share: errors of services as errors of arguments, in one line; lists of rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError


@contextmanager
def arguments_named(**names: str) -> Iterator[None]:
    """Turn a ValidationError into a CommandError; `names` maps its fields to the arguments."""
    try:
        yield
    except ValidationError as error:
        told = (
            f"{names.get(field, field)}: {' '.join(messages)}"
            for field, messages in error.message_dict.items()
        )
        raise CommandError("; ".join(told)) from error


def rows_told(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> str:
    """Each row as a line of JSON, or these columns of them as a table; every line is ended."""
    if as_json:
        return "".join(f"{msgspec.json.encode(row).decode()}\n" for row in rows)
    table = [list(columns), *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in table
    )
    return "".join(f"{line.rstrip()}\n" for line in padded)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:%Y-%m-%d %H:%M}" if isinstance(value, datetime) else str(value)
