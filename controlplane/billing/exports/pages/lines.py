"""Charged ledger lines, read by key in short transactions, whatever their number.

Lines are read in the order of their requests' ids. No index serves one organization alone, so a
statement looks through a span of ids: twice the last one where that held few lines, half of it
where it could not be read within the bound.
"""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection

from controlplane.billing.ledger.models import POSTING_KINDS
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX
from controlplane.telemetry.reading import TooMuchToRead, bounded_read
from controlplane.telemetry.selectors_requests import id_floor

PAGE_LINES_MAX = 5_000
SPAN_MAX, SPAN_MIN = timedelta(days=1), timedelta(seconds=1)
SPAN_FIRST = timedelta(hours=1)
FEW_LINES = PAGE_LINES_MAX // 4
# A gateway's clock, which makes ids, may be ahead of the database's, which books.
AHEAD_MAX = timedelta(hours=1)
SLOT_BEFORE_ALL = -1

_READ = """
    SELECT request, slot, kind, debit, credit, amount, booked_at, project, key, model,
           price_version, input_pico, cached_pico, output_pico, uncached, cached, output, source
    FROM transfers
    WHERE organization = %s AND request >= %s AND request < %s AND (request, slot) > (%s, %s)
      AND booked_at >= %s AND booked_at < %s AND kind = ANY (%s)
    ORDER BY request, slot LIMIT %s
"""


class ChargedLine(NamedTuple):
    """One line as it was booked; columns in the order of `_READ`."""

    request: uuid.UUID
    slot: int
    kind: str
    debit: str
    credit: str
    amount: int
    booked_at: datetime
    project: uuid.UUID
    key: uuid.UUID
    model: str
    price_version: int
    input_pico: int
    cached_pico: int
    output_pico: int
    uncached: int
    cached: int
    output: int
    source: str


class Place(NamedTuple):
    """Where a reading stands: after this line."""

    request: uuid.UUID
    slot: int

    @property
    def moment(self) -> datetime:
        return datetime.fromtimestamp((self.request.int >> 80) / 1_000, UTC)

    def text(self) -> str:
        return f"{self.request.hex}/{self.slot}"


def place_from(text: str) -> Place:
    """The place that `Place.text` told."""
    request, slot = text.split("/")
    return Place(uuid.UUID(hex=request), int(slot))


@dataclass
class LineReader:
    """Reads the lines of one organization that were booked in [start, end)."""

    organization: uuid.UUID
    start: datetime
    end: datetime
    span: timedelta = SPAN_FIRST

    def first(self) -> Place:
        """Where to begin: a request may be booked days after its id was made."""
        days = timedelta(days=BOOKED_DAYS_MAX)
        return Place(id_floor(self.start - days), SLOT_BEFORE_ALL)

    def read(self, place: Place) -> tuple[list[ChargedLine], Place | None]:
        """The next lines, perhaps none, and where they end; None at the end of all.

        Raises TooMuchToRead when not even the smallest span can be read in time.
        """
        last = self.end + AHEAD_MAX
        while True:
            until = min(place.moment + self.span, last)
            try:
                rows = self._rows(place, id_floor(until))
            except TooMuchToRead:
                if self.span <= SPAN_MIN:
                    raise
                self.span /= 2
                continue
            if len(rows) == PAGE_LINES_MAX:
                return rows, Place(rows[-1].request, rows[-1].slot)
            if len(rows) < FEW_LINES:
                self.span = min(2 * self.span, SPAN_MAX)
            return rows, None if until >= last else Place(id_floor(until), SLOT_BEFORE_ALL)

    def share(self, place: Place) -> float:
        """How much of the way lies before a place, 0 to 1."""
        begin = self.first().moment
        return (place.moment - begin) / (self.end + AHEAD_MAX - begin)

    def _rows(self, place: Place, below: uuid.UUID) -> list[ChargedLine]:
        values: list[Any] = [self.organization, place.request, below, *place]
        values += [self.start, self.end, list(POSTING_KINDS), PAGE_LINES_MAX]
        with bounded_read([self.organization]), connection.cursor() as cursor:
            cursor.execute(_READ, values)
            rows = cursor.fetchall()
        # The transaction is over before anything is made of them.
        return [ChargedLine(*row) for row in rows]
