"""The other half of the seals: recomputes them in Python from the rows, column by column.

Written apart from the SQL that makes them, so that one mistake cannot hide in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.db.backends.utils import CursorWrapper

from controlplane.billing.services import BOOKED_DAYS_MAX

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
_SEALS = "SELECT number, from_at, to_at, rows, amount, previous, digest FROM ledger_seals"


def seal_breaches(cursor: CursorWrapper) -> Iterator[str]:
    """Every seal whose rows, count, total or chain is not what it says; names it."""
    cursor.execute(_SEALS + " ORDER BY number")
    previous, sealed, end, first = sha256(b"").digest(), 0, None, None
    for place, seal in enumerate(cursor.fetchall(), start=1):
        number, from_at, to_at, rows, amount, chained, digest = seal
        if number != place or bytes(chained) != previous or (end and from_at != end):
            yield f"seal {number} does not continue the chain"
        found_rows, found_amount, found = _recompute(cursor, from_at, to_at, bytes(chained))
        if (found_rows, found_amount, found) != (rows, amount, bytes(digest)):
            yield (
                f"seal {number} ({from_at:%Y-%m-%d %H:%M:%S} to {to_at:%H:%M:%S}) does not match:"
                f" {found_rows} rows of {rows}, {found_amount} nano-USD of {amount}"
            )
        previous, end, sealed = bytes(digest), to_at, sealed + found_rows
        first = first or from_at
    if end is not None:
        cursor.execute("SELECT count(*) FROM transfers WHERE booked_at < %s", [end])
        booked = cursor.fetchone()[0]
        if booked != sealed:
            yield f"{booked - sealed} rows older than the last seal lie outside every seal"


def _recompute(
    cursor: CursorWrapper, from_at: Any, to_at: Any, previous: bytes
) -> tuple[int, int, bytes]:
    cursor.execute(_ROWS, [from_at - timedelta(days=BOOKED_DAYS_MAX), from_at, to_at])
    lines = []
    amount = 0
    for row in cursor.fetchall():
        lines.append(line_text(row))
        amount += row[5]
    return len(lines), amount, sha256(previous + "\n".join(lines).encode()).digest()


def line_text(row: tuple[Any, ...]) -> str:
    """A line as hashes read it: every column, the last only where it has a value."""
    *fields, budgets, booked_us, others = row
    joined = "-" if budgets is None else ",".join(map(str, budgets))
    last = [] if others is None else [others]
    return "|".join([*map(str, fields), joined, str(booked_us), *last])
