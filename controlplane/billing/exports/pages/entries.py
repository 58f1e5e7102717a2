"""Journal entries for files: read by key, and what each changes of what an organization owes."""

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from django.db.models import Q

from controlplane.billing.exports.pages.scope import Scope
from controlplane.billing.ledger.accounts import AccountKind, group_of
from controlplane.billing.ledger.models import POSTING_KINDS, EntryKind, JournalEntry, Transfer
from controlplane.telemetry.reading import bounded_read

PAGE_ENTRIES_MAX = 1_000
# Those that change what is owed; top-ups, payments and write-offs settle it.
CHARGING_KINDS = (
    EntryKind.CREDIT,
    EntryKind.ADJUSTMENT,
    EntryKind.REVERSAL,
    EntryKind.TAX,
    EntryKind.INVOICE_ROUNDING,
)
_OWED = (AccountKind.RECEIVABLE, AccountKind.WALLET)


def entries_read(
    scope: Scope, cursor: str, kinds: Iterable[str] = tuple(EntryKind.values)
) -> tuple[list[JournalEntry], str | None]:
    """The next entries by time of booking, and the cursor after them; None at the end."""
    wanted = Q(booked_at__gte=scope.start, booked_at__lt=scope.through, kind__in=list(kinds))
    if cursor:
        at, last = cursor.split("/")
        booked_at = _moment(int(at))
        wanted &= Q(booked_at__gt=booked_at) | Q(booked_at=booked_at, id__gt=uuid.UUID(hex=last))
    with bounded_read([scope.organization]):
        rows = JournalEntry.objects.filter(wanted, organization=scope.organization)
        found = list(rows.order_by("booked_at", "id")[:PAGE_ENTRIES_MAX])
    if len(found) < PAGE_ENTRIES_MAX:
        return found, None
    return found, f"{_microseconds(found[-1].booked_at)}/{found[-1].id.hex}"


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


def _microseconds(moment: datetime) -> int:
    since = moment - datetime.fromtimestamp(0, UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _moment(microseconds: int) -> datetime:
    seconds, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
