"""What was given back of an invoice's usage by both ways there are: its credit notes, and reversals
of its requests. Together they never give back more than was charged.

A request has no line of its own on an invoice: what is weighed is the usage of its model in its
project and month. Both ways take the month's lock first, so that each sees what the other booked.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import NamedTuple

from controlplane.billing.documents.lines import NANO_PER_CENT, Line, LineKind, lines_read
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.models import POSTING_KINDS, EntryKind, JournalEntry, Transfer
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX, ID_MARGIN
from controlplane.billing.months.periods import Period, period_of
from controlplane.core.queries import rows
from controlplane.kernel.money import PICO_PER_NANO
from controlplane.telemetry.selectors_requests import id_floor

READ_AT_ONCE = 1_000
PICO_PER_CENT = NANO_PER_CENT * PICO_PER_NANO
# A project's id in hex and a model: what lines of usage and requests have in common.
Usage = tuple[str, str]


class Left(NamedTuple):
    """What of an invoice has not been given back: pico-USD by line, and cents.

    `reversed_pico` of its usage went back by reversals that stand on no line of it; `lines` are
    less by that. `standing_pico` are those, by usage, that are lines of it, and given back with it.
    `kept_cents` are of reversals on it of earlier months' usage: they stay given, so that more can
    be given back of it than it asked for.
    """

    lines: dict[int, int]
    net_cents: int
    tax_cents: int
    reversed_pico: int
    standing_pico: Counter[Usage]
    kept_cents: int

    @property
    def pico(self) -> int:
        return sum(self.lines.values())

    def rooms(self, invoice: Invoice) -> dict[int, int]:
        """Pico-USD that may be given back of each line by itself."""
        rooms = dict(self.lines)
        _take(rooms, invoice, Counter(self.standing_pico))
        return rooms


def month_lock(organization: uuid.UUID, period: str) -> None:
    """One gives back of a month's usage at a time, until the transaction ends."""
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('give back:' || %s || %s, 0))"
    rows(lock, [str(organization), period])


def credit_left(invoice: Invoice) -> Left:
    """What can still be given back of an invoice; inside the organization's scope and its lock."""
    lines = {line.position: line.amount_pico for line in lines_read(invoice.lines)}
    net, tax = invoice.net_cents, invoice.tax_cents
    for note in invoice.notes.all():
        for line in lines_read(note.lines):
            lines[line.position] -= line.amount_pico
        net, tax = net - note.net_cents, tax - note.tax_cents
    own = {line.entry: line.position for line in lines_read(invoice.lines) if line.entry}
    apart: Counter[Usage] = Counter()
    standing: Counter[Usage] = Counter()
    for entry, usage in _reversals(invoice):
        position = own.pop(entry.id.hex, None)
        if position is None:
            apart[usage] += entry.amount * PICO_PER_NANO
        else:
            standing[usage] -= lines[position]
    reversed_pico = apart.total()
    _take(lines, invoice, apart)
    kept = _keep(lines, invoice, own)
    return Left(lines, net, tax, reversed_pico, standing, -(-kept // PICO_PER_CENT))


def reversal_room_nano(charge: Transfer) -> int | None:
    """What may still be reversed of all usage like this charge; None where the charge alone says.

    Takes the month's lock; inside the organization's scope.
    """
    period = period_of(charge.booked_at).name
    month_lock(charge.organization, period)
    invoice = Invoice.objects.filter(
        organization=charge.organization, period=period, kind=DocumentKind.INVOICE
    ).first()
    usage = (charge.project.hex, charge.model)
    if invoice is None or not any(
        _usage(line) == usage for note in invoice.notes.all() for line in lines_read(note.lines)
    ):
        return None
    rooms = credit_left(invoice).rooms(invoice)
    mine = [line.position for line in _usage_lines(invoice) if _usage(line) == usage]
    return max(0, sum(rooms[position] for position in mine) // PICO_PER_NANO)


def _reversals(invoice: Invoice) -> Iterator[tuple[JournalEntry, Usage]]:
    """All reversals of requests of the invoice's month."""
    period = Period(invoice.period)
    entries = JournalEntry.objects.filter(
        organization=invoice.organization,
        kind=EntryKind.REVERSAL,
        reverses__gte=id_floor(period.start - timedelta(days=BOOKED_DAYS_MAX)),
        reverses__lt=id_floor(period.end + ID_MARGIN),
    ).order_by("id")
    found = list(entries)
    for at in range(0, len(found), READ_AT_ONCE):
        some = found[at : at + READ_AT_ONCE]
        charges = Transfer.objects.filter(
            organization=invoice.organization,
            request__in={entry.reverses for entry in some},
            kind__in=POSTING_KINDS,
        )
        # The first line of a request says in which month it was charged.
        first = {charge.request: charge for charge in charges.order_by("-slot")}
        for entry in some:
            charge = first.get(entry.reverses) if entry.reverses else None
            if charge is not None and period_of(charge.booked_at) == period:
                yield entry, (charge.project.hex, charge.model)


def _keep(lines: dict[int, int], invoice: Invoice, own: dict[str, int]) -> int:
    """Leave out reversals of earlier months' usage among these lines: their own invoices count
    them as given back. Returns pico-USD by which the invoice asked less for them.
    """
    kept = 0
    wallet = accounts.wallet(invoice.organization)
    paid = next((each for each in lines_read(invoice.lines) if each.kind == LineKind.PREPAID), None)
    for entry in _of_requests(invoice, own):
        position = own[entry.id.hex]
        pico = -lines[position]
        if entry.credit != wallet:
            kept += pico
        elif paid is not None:
            # The same sum is in what the prepaid balance paid less.
            lines[paid.position] -= pico
        else:
            continue
        lines[position] = 0
    return kept


def _of_requests(invoice: Invoice, own: Iterable[str]) -> Iterator[JournalEntry]:
    entries = list(JournalEntry.objects.filter(id__in=own, kind=EntryKind.REVERSAL))
    for at in range(0, len(entries), READ_AT_ONCE):
        some = entries[at : at + READ_AT_ONCE]
        charged = Transfer.objects.filter(
            request__in={entry.reverses for entry in some},
            organization=invoice.organization,
            kind__in=POSTING_KINDS,
        )
        requests = set(charged.values_list("request", flat=True))
        yield from (entry for entry in some if entry.reverses in requests)


def _take(lines: dict[int, int], invoice: Invoice, given: Counter[Usage]) -> None:
    """Take what was given back from lines of the same usage, in their order."""
    for line in _usage_lines(invoice):
        taken = min(max(0, lines[line.position]), given[_usage(line)])
        lines[line.position] -= taken
        given[_usage(line)] -= taken
    # Charges are whole nano-USD: a reversal can exceed its tokens' price by less than one of each.
    rest = given.total()
    for position, room in lines.items():
        taken = min(max(0, room), rest)
        lines[position] -= taken
        rest -= taken


def _usage_lines(invoice: Invoice) -> Iterator[Line]:
    return (line for line in lines_read(invoice.lines) if line.kind == LineKind.USAGE)


def _usage(line: Line) -> Usage:
    return line.project, line.model
