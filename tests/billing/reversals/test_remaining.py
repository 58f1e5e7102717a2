"""Reversals and credit notes over the same usage: together never more than was charged for it."""

from __future__ import annotations

import io
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connections

from controlplane.billing.documents.lines import LineKind, lines_read
from controlplane.billing.documents.models import Invoice
from controlplane.billing.invoices.services import invoice_issue
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.models import JournalEntry
from controlplane.billing.months.periods import Period
from controlplane.billing.reversals.credit_notes import credit_note_issue
from controlplane.billing.reversals.remaining import credit_left
from controlplane.billing.reversals.requests import request_reverse
from controlplane.billing.verification.books import GIVEN_BACK, REVERSED
from controlplane.core.errors.body import Conflict
from controlplane.core.models import uuid7
from controlplane.core.permissions import organization_scope
from tests.support.documents import booked
from tests.support.money import rows
from tests.support.month import ALPHA, PERIOD, START, Month, seal_month, seed_month
from tests.support.people import make_cast

# At once with credit notes over all of their usage: some of each are refused.
REVERSALS = 16


@pytest.fixture
def month(database: str) -> Month:
    made = seed_month(make_cast())
    seal_month()
    return made


@pytest.fixture
def invoice(month: Month) -> Invoice:
    acme = month.cast.acme.id
    return invoice_issue(actor=month.cast.alice, organization_id=acme, period=Period(PERIOD))


def charges(month: Month) -> dict[uuid.UUID, int]:
    """What requests of alpha cost in Acme's first project, but for those reversed in October."""
    found: Counter[uuid.UUID] = Counter()
    for line in month.posted(month.cast.acme.id):
        if line.model == ALPHA and line.project == month.cast.project.id:
            found[line.request] += line.amount
    for entry in month.entries:
        if entry.reverses is not None:
            found.pop(entry.reverses, None)
    return dict(found)


def reverse(
    month: Month, request: uuid.UUID, nano: int, form: uuid.UUID | None = None
) -> JournalEntry:
    return booked(
        request_reverse(
            actor=month.cast.stella,
            organization=month.cast.acme.id,
            request=request,
            nano=nano,
            reason="cut",
            form=form or uuid7(),
        )
    )


def credit(month: Month, invoice: Invoice, amounts: dict[int, int] | None = None) -> Invoice:
    return booked(
        credit_note_issue(
            actor=month.cast.stella, invoice=invoice, reason="wrong", amounts_nano=amounts
        )
    )


def alpha_lines(month: Month, invoice: Invoice) -> dict[int, int]:
    """Nano-USD of the lines on which those requests stand, by position."""
    return {
        line.position: line.amount_pico // 1_000
        for line in lines_read(invoice.lines)
        if line.kind == LineKind.USAGE
        and (line.project, line.model) == (month.cast.project.id.hex, ALPHA)
    }


def earlier(month: Month) -> int:
    """What October's invoice gives back of September's usage."""
    return sum(
        entry.amount
        for entry in month.corrections(month.cast.acme.id)
        for line in month.lines
        if entry.reverses == line.request and line.posts and line.booked_at < START
    )


def assert_whole() -> None:
    """What the verifier asks of reversals; it takes seconds for all of a month."""
    assert rows(REVERSED) == rows(GIVEN_BACK) == []


def test_what_was_reversed_is_not_credited_again(month: Month, invoice: Invoice) -> None:
    request, nano = max(charges(month).items(), key=lambda item: item[1])
    reverse(month, request, nano)
    note = credit(month, invoice)
    assert note.subtotal_nano == invoice.subtotal_nano + earlier(month) - nano
    assert abs(note.net_cents * 10_000_000 - note.subtotal_nano) <= 5_000_000
    with pytest.raises(ValidationError, match="Nothing remains"):
        credit(month, invoice)
    # Nor is the other way open for what the note gave back.
    other = min(charges(month))
    with pytest.raises(ValidationError, match="credited: 0 nano-USD") as refused:
        reverse(month, other, 1)
    assert list(refused.value.message_dict) == ["nano"]
    assert_whole()
    _book_unchecked(month, other)
    out = io.StringIO()
    call_command("verify_ledger", stdout=out)
    assert f"more than was charged for {ALPHA}" in out.getvalue()


def test_a_whole_note_leaves_what_was_reversed_of_an_earlier_month(month: Month) -> None:
    """September's only charge is reversed on October's invoice, and both months are credited."""
    acme, stella = month.cast.acme.id, month.cast.stella
    september, october = (
        invoice_issue(actor=month.cast.alice, organization_id=acme, period=Period(period))
        for period in ("2025-09", PERIOD)
    )
    given = earlier(month)
    assert given == september.subtotal_nano > 0
    with pytest.raises(ValidationError, match="Nothing remains"):
        credit(month, september)
    some = credit(month, october, {1: 5_000_001})
    rest = credit(month, october)
    # All that was used in both months is given back: part of it by the reversal, once.
    notes_nano = some.subtotal_nano + rest.subtotal_nano
    assert notes_nano == october.subtotal_nano + given
    for invoice in (september, october):
        with pytest.raises(ValidationError, match="Nothing remains"):
            credit_note_issue(actor=stella, invoice=invoice, reason="again")
    cents = september.net_cents + october.net_cents
    assert abs(some.net_cents + rest.net_cents - cents) <= 1
    seal_month()
    out = io.StringIO()
    call_command("verify_ledger", "--strict", stdout=out)
    assert "L2 ok" in out.getvalue()


def _book_unchecked(month: Month, request: uuid.UUID) -> None:
    """A reversal that no service has looked at."""
    acme = month.cast.acme.id
    values = ("reversal", accounts.revenue(ALPHA), accounts.receivable(acme), 1, "twice", "")
    rows(
        "INSERT INTO journal_entries (id, organization, kind, debit, credit, amount, reason,"
        " reference, reverses, idempotency, actor_label, approved_by, payload_hash)"
        " VALUES (gen_random_uuid(), %s, %s, %s, %s, %s, %s, %s, %s, 'x', 'me', '',"
        " ledger_payload_hash(%s, %s, %s, %s, %s, %s, %s))",
        acme,
        *values,
        request,
        *values,
        request,
    )


def test_part_of_each_fits_up_to_the_charge(month: Month, invoice: Invoice) -> None:
    lines, kept = alpha_lines(month, invoice), 1_000_000
    with organization_scope([invoice.organization]):
        rooms = credit_left(invoice).rooms(invoice)
    request, nano = next(item for item in charges(month).items() if item[1] > 2 * kept)
    last = max(lines, key=lambda position: rooms[position])
    for position in lines:
        # All but a million of the group; what October's own reversals gave is in no room.
        take = rooms[position] // 1_000 - (kept if position == last else 0)
        if take > 0:
            credit(month, invoice, {position: take})
    with pytest.raises(ValidationError, match="of this usage"):
        reverse(month, request, nano)
    form = uuid7()
    first = reverse(month, request, kept, form)
    # A repeat is still a repeat, and another content under its key a conflict.
    assert reverse(month, request, kept, form) == first
    with pytest.raises(Conflict):
        reverse(month, request, kept + 1, form)
    for position in lines:
        with pytest.raises(ValidationError):
            credit(month, invoice, {position: 1_000})
    assert_whole()


def test_both_at_once_give_back_no_more_than_the_charge(month: Month, invoice: Invoice) -> None:
    found, lines = charges(month), alpha_lines(month, invoice)
    calls: list[Callable[[], object]] = [
        partial(reverse, month, request, nano) for request, nano in [*found.items()][:REVERSALS]
    ]
    calls += [partial(credit, month, invoice, {at: nano // 4}) for at, nano in lines.items()] * 4

    def attempt(number: int) -> bool:
        try:
            calls[number]()
        except ValidationError:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(8) as threads:
        mixed = sorted(range(len(calls)), key=lambda number: number * 7 % 31)
        done = list(threads.map(attempt, mixed))
    assert any(done)
    assert not all(done)
    assert_whole()
