"""Charged ledger lines and journal entries, read by key in short transactions, whatever their
number.

Lines are read in the order of their requests' ids. No index serves one organization alone, so a
statement looks through a span of ids: twice the last one where that held few lines, half of it
where it could not be read within the bound.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q

from controlplane.billing.exports.pages.scope import Scope
from controlplane.billing.ledger.accounts import AccountKind, group_of
from controlplane.billing.ledger.models import POSTING_KINDS, EntryKind, JournalEntry, Transfer
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX
from controlplane.core.queries import rows
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
PAGE_ENTRIES_MAX = 1_000
EPOCH, MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)
# Those that change what is owed; top-ups, payments and write-offs settle it.
CHARGING_KINDS = (
    EntryKind.CREDIT,
    EntryKind.ADJUSTMENT,
    EntryKind.REVERSAL,
    EntryKind.TAX,
    EntryKind.INVOICE_ROUNDING,
)
_OWED = (AccountKind.RECEIVABLE, AccountKind.WALLET)


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
                found = self._rows(place, id_floor(until))
            except TooMuchToRead:
                if self.span <= SPAN_MIN:
                    raise
                self.span /= 2
                continue
            if len(found) == PAGE_LINES_MAX:
                return found, Place(found[-1].request, found[-1].slot)
            if len(found) < FEW_LINES:
                self.span = min(2 * self.span, SPAN_MAX)
            return found, None if until >= last else Place(id_floor(until), SLOT_BEFORE_ALL)

    def share(self, place: Place) -> float:
        """How much of the way lies before a place, 0 to 1."""
        begin = self.first().moment
        return (place.moment - begin) / (self.end + AHEAD_MAX - begin)

    def _rows(self, place: Place, below: uuid.UUID) -> list[ChargedLine]:
        values: list[Any] = [self.organization, place.request, below, *place]
        values += [self.start, self.end, list(POSTING_KINDS), PAGE_LINES_MAX]
        with bounded_read([self.organization]):
            found = rows(_READ, values)
        # The transaction is over before anything is made of them.
        return [ChargedLine(*row) for row in found]


def entries_read(
    scope: Scope, cursor: str, kinds: Iterable[str] = tuple(EntryKind.values)
) -> tuple[list[JournalEntry], str | None]:
    """The next entries by time of booking, and the cursor after them; None at the end."""
    wanted = Q(booked_at__gte=scope.start, booked_at__lt=scope.through, kind__in=list(kinds))
    if cursor:
        at, last = cursor.split("/")
        booked_at = EPOCH + int(at) * MICROSECOND
        wanted &= Q(booked_at__gt=booked_at) | Q(booked_at=booked_at, id__gt=uuid.UUID(hex=last))
    with bounded_read([scope.organization]):
        rows = JournalEntry.objects.filter(wanted, organization=scope.organization)
        found = list(rows.order_by("booked_at", "id")[:PAGE_ENTRIES_MAX])
    if len(found) < PAGE_ENTRIES_MAX:
        return found, None
    return found, f"{(found[-1].booked_at - EPOCH) // MICROSECOND}/{found[-1].id.hex}"


def owed_nano(entry: JournalEntry) -> int:
    """What the entry adds to what the organization owes; below zero where it owes less."""
    if entry.kind not in CHARGING_KINDS:
        return 0
    # Credit put into a wallet is spent on charges later; on its own it changes no bill.
    mine = {AccountKind.RECEIVABLE} if entry.kind == EntryKind.CREDIT else {*_OWED}
    return entry.amount * ((group_of(entry.debit) in mine) - (group_of(entry.credit) in mine))


def first_booked(scope: Scope, entries: Iterable[JournalEntry]) -> dict[uuid.UUID, datetime]:
    """When what these entries reverse was booked, by its id."""
    wanted = [entry.reverses for entry in entries if entry.reverses]
    found: dict[uuid.UUID, datetime] = {}
    if not wanted:
        return found
    with bounded_read([scope.organization]):
        earlier = JournalEntry.objects.filter(organization=scope.organization, id__in=wanted)
        found.update(earlier.values_list("id", "booked_at"))
        lines = Transfer.objects.filter(
            organization=scope.organization, request__in=wanted, kind__in=POSTING_KINDS
        )
        for request, booked_at in lines.values_list("request", "booked_at"):
            found[request] = min(booked_at, found.get(request, booked_at))
    return found
