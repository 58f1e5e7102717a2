"""Whatever one person may not give alone waits for a second one: notes, reversals, payments too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import Client, override_settings
from django.urls import reverse as reverse_url

from controlplane.billing.approvals.models import GrantKind, GrantState, WalletGrant
from controlplane.billing.approvals.selectors import grant_list, grants_pending
from controlplane.billing.decisions.services import grant_approve, grant_refuse
from controlplane.billing.documents.lines import Line, LineKind, lines_read
from controlplane.billing.documents.models import BillingProfile, DocumentKind
from controlplane.billing.documents.services import document_keep, document_make
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.models import JournalEntry
from controlplane.billing.payments.models import Payment
from controlplane.billing.payments.services import payment_record
from controlplane.billing.reversals.credit_notes import credit_note_issue
from controlplane.billing.reversals.requests import request_reverse
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.errors.body import Conflict
from controlplane.core.models import uuid7
from controlplane.core.permissions import organization_scope
from controlplane.kernel.ids import uuid_of
from tests.support.documents import booked, make_invoice
from tests.support.money import rows
from tests.support.people import Cast, make_cast, make_steve, signed_in

USD = 1_000_000_000


@pytest.fixture
def cast(database: str) -> Iterator[Cast]:
    with override_settings(GRANT_ALONE_USD=10):
        yield make_cast()


def waiting(found: object) -> WalletGrant:
    assert isinstance(found, WalletGrant) and found.state == GrantState.PENDING
    return found


def charge(cast: Cast, nano: int) -> uuid.UUID:
    """A settled request of Acme's, without a hold."""
    request = uuid7()
    rows(
        "INSERT INTO transfers (request, slot, kind, debit, credit, amount, organization, project,"
        " key, model, price_version, input_pico, cached_pico, output_pico, uncached, source)"
        " VALUES (%s, 1, 'settle', %s, 'revenue:tiny', %s, %s, %s, %s, 'tiny', 1, 1000, 1, 1, 5,"
        " 'gateway')",
        request,
        accounts.receivable(cast.acme.id),
        nano,
        cast.acme.id,
        cast.project.id,
        cast.project.id,
    )
    return request


def reverse(cast: Cast, request: uuid.UUID, nano: int, form: uuid.UUID) -> JournalEntry:
    return booked(
        request_reverse(
            actor=cast.stella,
            organization=cast.acme.id,
            request=request,
            nano=nano,
            reason="cut",
            form=form,
        )
    )


def test_a_large_credit_note_waits_and_is_issued_in_both_names(cast: Cast) -> None:
    invoice = make_invoice(cast.acme.id)
    made = waiting(credit_note_issue(actor=cast.stella, invoice=invoice, reason="all of it"))
    assert (made.kind, made.about, made.amount_nano) == ("credit_note", "INV-000001", 12 * USD)
    assert rows("SELECT count(*) FROM invoices WHERE kind = 'credit_note'") == [(0,)]
    with pytest.raises(PermissionDenied):
        grant_approve(actor=cast.stella, grant=made)
    # Two dollars are given meanwhile, by somebody who has not yet given ten: less is left.
    part = booked(
        credit_note_issue(
            actor=OPERATOR, invoice=invoice, reason="one line", amounts_nano={1: 2 * USD}
        )
    )
    with pytest.raises(ValidationError, match="remaining amount has changed"):
        grant_approve(actor=make_steve(), grant=made)
    assert [one.id for one in grants_pending(actor=OPERATOR)] == [made.id]
    grant_refuse(actor=cast.stella, grant=made)
    again = waiting(
        credit_note_issue(actor=OPERATOR, invoice=invoice, reason="rest", amounts_nano={1: 9 * USD})
    )
    grant_approve(actor=cast.stella, grant=again)
    assert rows(
        "SELECT reference, actor_label, approved_by FROM journal_entries"
        " WHERE kind = 'adjustment' ORDER BY id"
    ) == [
        (part.title, "operator", ""),
        ("CN-000002", "operator", "stella@example.org"),
    ]
    assert rows("SELECT issued_by FROM invoices WHERE number = 2") == [("operator",)]


def test_a_part_that_is_sent_twice_is_given_once(cast: Cast) -> None:
    invoice, form = make_invoice(cast.acme.id), uuid7()
    give = partial(credit_note_issue, actor=OPERATOR, invoice=invoice, reason="cut", form=form)
    booked(give(amounts_nano={1: 2 * USD}))
    again = give(amounts_nano={1: 2 * USD})
    assert isinstance(again, WalletGrant) and again.state == GrantState.BOOKED
    assert rows("SELECT count(*) FROM invoices WHERE kind = 'credit_note'") == [(1,)]
    with pytest.raises(Conflict):
        give(amounts_nano={1: 3 * USD})


def test_what_a_note_puts_back_into_the_wallet_counts_too(cast: Cast) -> None:
    """Of 12 dollars' usage the wallet paid 11: to give it back takes a second person."""
    acme = cast.acme.id
    usage, *_ = lines_read(make_invoice(acme).lines)
    prepaid = Line(position=2, kind=LineKind.PREPAID, amount_pico=-11 * USD * 1_000)
    mixed = document_make(
        organization_id=acme,
        kind=DocumentKind.INVOICE,
        period="2025-02",
        lines=[usage, prepaid],
        profile=BillingProfile(organization=acme),
        name="Acme",
    )
    with organization_scope([acme]):
        document_keep(OPERATOR, mixed)
    made = waiting(credit_note_issue(actor=cast.stella, invoice=mixed, reason="all of it"))
    assert made.amount_nano == 12 * USD
    grant_approve(actor=make_steve(), grant=made)
    assert rows("SELECT lim FROM budgets WHERE scope = 'wallet'") == [(11 * USD,)]


def test_a_large_payment_waits_and_counts_its_reference_once(cast: Cast) -> None:
    invoice = make_invoice(cast.acme.id)
    one, two = (
        waiting(
            payment_record(
                actor=cast.stella, invoice=invoice, amount_cents=1_100, reference="bank 7"
            )
        )
        for _ in range(2)
    )
    assert rows("SELECT count(*) FROM payments, journal_entries") == [(0,)]
    steve = make_steve()
    grant_approve(actor=steve, grant=one)
    with pytest.raises(Conflict, match="already recorded"):
        grant_approve(actor=steve, grant=two)
    assert rows("SELECT amount_cents, recorded_by FROM payments") == [(1_100, "stella@example.org")]
    assert rows("SELECT kind, approved_by FROM journal_entries") == [
        ("payment", "steve@example.org")
    ]
    small = payment_record(actor=cast.stella, invoice=invoice, amount_cents=100, reference="bank 8")
    assert isinstance(small, Payment)


def test_all_kinds_count_together_and_a_large_reversal_waits(cast: Cast) -> None:
    request, form = charge(cast, 20 * USD), uuid7()
    first = reverse(cast, request, 9 * USD, form)
    assert reverse(cast, request, 9 * USD, form) == first
    with pytest.raises(Conflict):
        reverse(cast, request, 8 * USD, form)
    made = waiting(
        request_reverse(
            actor=cast.stella,
            organization=cast.acme.id,
            request=request,
            nano=2 * USD,
            reason="cut",
            form=uuid7(),
        )
    )
    invoice = make_invoice(cast.acme.id)
    waiting(
        payment_record(actor=cast.stella, invoice=invoice, amount_cents=101, reference="bank 7")
    )
    grant_approve(actor=make_steve(), grant=made)
    assert rows(
        "SELECT amount, approved_by FROM journal_entries WHERE reverses = %s ORDER BY id", request
    ) == [(9 * USD, ""), (2 * USD, "steve@example.org")]
    kinds = [one.kind for one in grant_list(actor=cast.alice, organization_id=cast.acme.id).rows]
    assert kinds == [GrantKind.PAYMENT, GrantKind.REVERSAL, GrantKind.REVERSAL]


def test_the_api_says_that_it_waits_and_keeps_who_tried_alone(cast: Cast) -> None:
    """A failed answer of an idempotency key rolls back; the row of the log is kept all the same."""
    invoice = make_invoice(cast.acme.id)
    base = f"/api/billing/organizations/{cast.acme.id}"
    stella = signed_in(cast.stella)
    told = _post(stella, f"{base}/invoices/{invoice.id}/credit-notes", {"reason": "all"}, "a")
    assert (told.status_code, told.json()["state"]) == (202, "pending")
    grant = told.json()["id"]
    assert _post(stella, f"{base}/grants/{grant}/approve", None, "b").status_code == 403
    assert rows(
        "SELECT actor_label FROM audit_entries WHERE action = 'wallet.grant_approve_refused'"
        " AND subject_id = %s",
        uuid_of(grant, "grant"),
    ) == [("stella@example.org",)]
    page = stella.get(reverse_url("grants")).content.decode()
    assert "INV-000001: all" in page


def _post(client: Client, path: str, body: object, key: str) -> Any:
    return client.post(
        path,
        msgspec.json.encode(body) if body else b"",
        content_type="application/json",
        headers={"Idempotency-Key": key},
    )
