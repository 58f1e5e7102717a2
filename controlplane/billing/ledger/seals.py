"""The other half of the seals: recomputes them in Python from the rows, column by column.

Written apart from the SQL that makes them, so that one mistake cannot hide in both.
"""

from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.db.backends.utils import CursorWrapper

from controlplane.billing.ledger.services import BOOKED_DAYS_MAX

# As `line_text` takes them.
LINE_COLUMNS = """request, slot, kind, debit, credit, amount, organization, project, key, model,
           price_version, input_pico, cached_pico, output_pico, uncached, cached, output, source,
           budgets, (extract(epoch FROM booked_at) * 1000000)::bigint, others::text"""
_ROWS = f"""
    SELECT {LINE_COLUMNS}
    FROM transfers
    WHERE request >= request_floor(%s) AND booked_at >= %s AND booked_at < %s
    ORDER BY booked_at, request, slot
"""
_SEALS = "SELECT number, from_at, to_at, rows, amount, previous, digest, tags FROM ledger_seals"
TAG_BYTES = 4


def seal_breaches(cursor: CursorWrapper) -> Iterator[str]:
    """Every seal whose rows, count, total or chain is not what it says; names it."""
    cursor.execute(_SEALS + " ORDER BY number")
    previous, sealed, end, first = sha256(b"").digest(), 0, None, None
    for place, seal in enumerate(cursor.fetchall(), start=1):
        number, from_at, to_at, rows, amount, chained, digest, tags = seal
        if number != place or bytes(chained) != previous or (end and from_at != end):
            yield f"seal {number} does not continue the chain"
        lines, found_amount = _lines(cursor, from_at, to_at)
        found_rows = len(lines)
        found = sha256(bytes(chained) + "\n".join(lines).encode()).digest()
        if (found_rows, found_amount, found) != (rows, amount, bytes(digest)):
            yield (
                f"seal {number} ({from_at:%Y-%m-%d %H:%M:%S} to {to_at:%H:%M:%S}) does not match:"
                f" {found_rows} rows of {rows}, {found_amount} nano-USD of {amount}"
                f"{_first_difference(lines, tags)}"
            )
        previous, end, sealed = bytes(digest), to_at, sealed + found_rows
        first = first or from_at
    if end is not None:
        cursor.execute("SELECT count(*) FROM transfers WHERE booked_at < %s", [end])
        booked = cursor.fetchone()[0]
        if booked != sealed:
            yield f"{booked - sealed} rows older than the last seal lie outside every seal"


def _lines(cursor: CursorWrapper, from_at: Any, to_at: Any) -> tuple[list[str], int]:
    """The lines of a seal as hashes read them, in their order, and what they amount to."""
    cursor.execute(_ROWS, [from_at - timedelta(days=BOOKED_DAYS_MAX), from_at, to_at])
    found = cursor.fetchall()
    return [line_text(row) for row in found], sum(row[5] for row in found)


def _first_difference(lines: list[str], tags: bytes | None) -> str:
    """Which line is the first that is not as it was sealed; nothing for a seal without tags."""
    if tags is None:
        return ""
    kept = bytes(tags)
    for place, line in enumerate(lines):
        at = place * TAG_BYTES
        if sha256(line.encode()).digest()[:TAG_BYTES] != kept[at : at + TAG_BYTES]:
            request, slot, *_ = line.split("|")
            return f"; the first that differs is row {place + 1}: request {request}, slot {slot}"
    return f"; what is missing follows row {len(lines)}"


def line_text(row: tuple[Any, ...]) -> str:
    """A line as hashes read it: every column, the last only where it has a value."""
    *fields, budgets, booked_us, others = row
    joined = "-" if budgets is None else ",".join(map(str, budgets))
    last = [] if others is None else [others]
    return "|".join([*map(str, fields), joined, str(booked_us), *last])
