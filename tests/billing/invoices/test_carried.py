"""What is left over of an invoice is taken off the next one, each cent once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from controlplane.billing.documents.models import Invoice
from controlplane.billing.documents.pdf import invoice_pdf
from controlplane.billing.documents.profiles import invoice_get
from controlplane.billing.documents.services import document_digest
from controlplane.billing.documents.text import invoice_csv
from controlplane.billing.invoices.selectors import invoice_found
from controlplane.billing.invoices.services import invoice_draft, invoice_issue
from controlplane.billing.months.periods import Period
from controlplane.billing.payments.selectors import credit_cents
from controlplane.billing.payments.services import payment_record
from controlplane.billing.reversals.credit_notes import credit_note_issue
from controlplane.billing.verification.books import CARRIED
from tests.support.documents import booked
from tests.support.money import rows
from tests.support.people import Cast, make_cast, signed_in

MONTHS = tuple(f"2025-{month:02d}" for month in range(1, 9))


@pytest.fixture
def cast(database: str) -> Cast:
    """Acme used five dollars in each month."""
    made = make_cast()
    rows(
        "INSERT INTO ledger_hours (organization, hour, project, key, model, price_version,"
        " input_pico, cached_pico, output_pico, requests, uncached, cached, output, nano)"
        " SELECT %s, (m || '-03T00:00Z')::timestamptz, %s, %s, 'm', 1, 1000000, 1, 1, 1, 5000000,"
        " 0, 0, 5000000000 FROM unnest(%s::text[]) AS m",
        made.acme.id,
        made.project.id,
        made.project.id,
        list(MONTHS),
    )
    return made


def issue(cast: Cast, month: str) -> Invoice:
    acme = cast.acme.id
    made = invoice_issue(actor=cast.alice, organization_id=acme, period=Period(month))
    return invoice_get(actor=cast.alice, organization_id=acme, invoice_id=made.id)


def left_over(cast: Cast) -> int:
    return credit_cents(actor=cast.alice, organization_id=cast.acme.id)


def pay(cast: Cast, invoice: Invoice, cents: int) -> None:
    booked(
        payment_record(
            actor=cast.stella, invoice=invoice, amount_cents=cents, reference=invoice.title
        )
    )


def test_a_payment_above_the_total_and_a_note_beyond_what_is_owed_are_carried_on(
    cast: Cast,
) -> None:
    first = issue(cast, MONTHS[0])
    assert (first.total_cents, first.carried_cents, left_over(cast)) == (500, 0, 0)
    pay(cast, first, 1_200)
    assert left_over(cast) == 700
    acme = cast.acme.id
    draft = invoice_draft(actor=cast.alice, organization_id=acme, period=Period(MONTHS[1]))
    assert (draft.carried_cents, draft.asked_cents) == (500, 0)
    second = issue(cast, MONTHS[1])
    assert (second.carried_cents, second.asked_cents, left_over(cast)) == (500, 0, 200)
    assert document_digest(second) == bytes(second.digest)
    found = invoice_found(actor=cast.alice, organization_id=acme, invoice_id=second.id)
    assert (found.standing.words, found.standing.open_cents) == ("paid", 0)
    third = issue(cast, MONTHS[2])
    assert (third.carried_cents, third.asked_cents, left_over(cast)) == (200, 300, 0)
    *_, total, carried, due = invoice_csv(third).splitlines()
    ends = [row.rpartition(",")[2] for row in (total, carried, due)]
    assert ends == ["5.000000000000", "-2.000000000000", "3.000000000000"]
    assert invoice_pdf(third).startswith(b"%PDF-")
    page = signed_in(cast.alice).get(f"/invoices/{third.id.hex}").content.decode()
    assert "Credit carried over" in page and "3.00" in page
    # Given back whole: what had been carried to it is there for the next again.
    booked(credit_note_issue(actor=cast.stella, invoice=third, reason="all of it"))
    assert left_over(cast) == 200
    fourth = issue(cast, MONTHS[3])
    assert fourth.carried_cents == 200
    assert rows(CARRIED) == []
    rows("ALTER TABLE invoices DISABLE TRIGGER append_only")
    rows("UPDATE invoices SET carried_cents = 500 WHERE id = %s", fourth.id)
    assert len(rows(CARRIED)) == 1


def test_invoices_issued_at_once_carry_each_cent_once(cast: Cast) -> None:
    pay(cast, issue(cast, MONTHS[0]), 1_300)

    def attempt(month: str) -> int:
        try:
            return issue(cast, month).carried_cents
        finally:
            connections.close_all()

    with ThreadPoolExecutor(7) as threads:
        carried = list(threads.map(attempt, MONTHS[1:]))
    assert sorted(carried) == [0] * 5 + [300, 500]
    assert left_over(cast) == 0
