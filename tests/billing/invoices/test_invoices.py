"""Invoices: equal to the ledger, numbered without gaps, never changed, corrected by notes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.db import connections

from controlplane.billing.approvals.models import GrantKind
from controlplane.billing.documents.lines import LineKind, lines_read
from controlplane.billing.documents.models import DocumentKind, Invoice
from controlplane.billing.documents.pdf import invoice_pdf
from controlplane.billing.documents.profiles import ProfileDraft, billing_profile_set, invoice_get
from controlplane.billing.documents.services import document_digest
from controlplane.billing.documents.text import invoice_csv
from controlplane.billing.invoices.selectors import invoice_found, invoice_list
from controlplane.billing.invoices.services import invoice_draft, invoice_issue
from controlplane.billing.ledger import accounts
from controlplane.billing.months.periods import Period, period_of
from controlplane.billing.payments.dunning import Stage, Standing, worst
from controlplane.billing.payments.selectors import open_invoices
from controlplane.billing.payments.services import payment_record
from controlplane.billing.reversals.credit_notes import credit_note_issue
from controlplane.billing.wallets.services import Gift, wallet_grant
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.errors.body import Conflict
from controlplane.core.models import uuid7
from controlplane.tenants.services import organization_create
from tests.support.documents import booked
from tests.support.money import dsn, rows
from tests.support.month import END, PERIOD, START, Month, seal_month, seed_month
from tests.support.people import make_cast

OCTOBER = Period(PERIOD)
NANO_PER_CENT = 10_000_000
# The seeded entries are before it, what tests book is after it.
YEAR_AFTER = END + timedelta(days=40)


@pytest.fixture
def month(database: str) -> Month:
    made = seed_month(make_cast())
    seal_month()
    return made


def issue(month: Month) -> Invoice:
    return invoice_issue(actor=month.cast.alice, organization_id=month.cast.acme.id, period=OCTOBER)


def owed_nano(month: Month) -> int:
    """What the ledger says that Acme owes for October, and what documents and payments added."""
    account = accounts.receivable(month.cast.acme.id)
    since = rows(
        "SELECT debit, credit, amount FROM journal_entries WHERE booked_at > %s", YEAR_AFTER
    )
    added: int = sum(
        amount if debit == account else -amount
        for debit, credit, amount in since
        if account in (debit, credit)
    )
    return month.owed(month.cast.acme.id) + added


def test_it_equals_the_ledger_to_the_nano_and_asks_for_whole_cents(month: Month) -> None:
    made = issue(month)
    owed = month.owed(month.cast.acme.id)
    assert made.subtotal_nano == owed
    assert owed % NANO_PER_CENT != 0
    assert sum(line.amount_pico for line in lines_read(made.lines)) == owed * 1_000
    for line in lines_read(made.lines):
        if line.kind == LineKind.USAGE:
            assert line.quantity * line.unit_pico == line.amount_pico
    assert abs(made.net_cents * NANO_PER_CENT - owed) <= NANO_PER_CENT // 2
    # With what the invoice booked, the customer owes exactly what it asks for.
    assert owed_nano(month) == made.total_cents * NANO_PER_CENT


def test_lines_are_by_project_model_price_and_kind_of_token(month: Month) -> None:
    lines = lines_read(issue(month).lines)
    usage = [line for line in lines if line.kind == LineKind.USAGE]
    keys = [(line.project, line.model, line.token_type, line.unit_pico) for line in usage]
    assert len(set(keys)) == len(keys)
    assert {line.token_type for line in usage} == {"uncached_input", "cached_input", "output"}
    by_project = month.sums(month.cast.acme.id, lambda line: line.project.hex)
    for project, nano in by_project.items():
        pico = sum(line.amount_pico for line in usage if line.project == project)
        assert abs(pico - nano * 1_000) < 1_000 * 400
    assert [line.kind for line in lines].count(LineKind.ROUNDING) == 1
    corrections = [line for line in lines if line.kind == LineKind.CORRECTION]
    wanted = month.corrections(month.cast.acme.id)
    assert [(line.entry, line.amount_pico) for line in corrections] == [
        (entry.id.hex, entry.owed * 1_000) for entry in wanted
    ]


def test_tax_is_on_top_and_booked_to_its_jurisdiction(month: Month) -> None:
    acme = month.cast.acme.id
    draft = ProfileDraft(tax_basis_points=1_900, tax_jurisdiction="DE VAT")
    with pytest.raises(PermissionDenied):
        billing_profile_set(actor=month.cast.alice, organization_id=acme, draft=draft)
    billing_profile_set(actor=month.cast.stella, organization_id=acme, draft=draft)
    made = issue(month)
    assert made.tax_cents == round(made.net_cents * 0.19)
    assert made.total_cents == made.net_cents + made.tax_cents
    assert rows("SELECT amount FROM journal_entries WHERE credit = 'tax:DE VAT'") == [
        (made.tax_cents * NANO_PER_CENT,)
    ]


def test_a_month_that_goes_on_or_is_empty_is_not_issued(month: Month) -> None:
    acme = month.cast.acme.id
    now = period_of(END + timedelta(days=100_000))
    with pytest.raises(ValidationError, match="not ended"):
        invoice_issue(actor=month.cast.alice, organization_id=acme, period=now)
    with pytest.raises(ValidationError, match="There are no charges"):
        invoice_issue(actor=month.cast.alice, organization_id=acme, period=Period("2024-01"))
    assert rows("SELECT last FROM document_numbers WHERE kind = 'invoice'") == [(0,)]


def test_a_month_is_issued_once_and_by_those_who_may(month: Month) -> None:
    cast = month.cast
    for actor, refusal in ((cast.bob, PermissionDenied), (cast.charlie, ObjectDoesNotExist)):
        with pytest.raises(refusal):
            invoice_issue(actor=actor, organization_id=cast.acme.id, period=OCTOBER)
    issue(month)
    with pytest.raises(Conflict):
        issue(month)
    assert rows("SELECT count(*) FROM invoices") == [(1,)]
    assert rows("SELECT last FROM document_numbers WHERE kind = 'invoice'") == [(1,)]


def test_numbers_have_no_gap_when_many_are_issued_at_once(month: Month) -> None:
    """Eight organizations at the same time, each twice: of each pair one is refused."""
    cast = month.cast
    others = [
        organization_create(actor=OPERATOR, name=f"O{number}", owner=cast.alice).id
        for number in range(8)
    ]
    rows(
        "INSERT INTO ledger_hours (organization, hour, project, key, model, price_version,"
        " input_pico, cached_pico, output_pico, requests, uncached, cached, output, nano)"
        " SELECT o, %s, o, o, 'm', 1, 7, 3, 11, 1, 12345, 0, 0, 86"
        " FROM unnest(%s::uuid[]) AS o",
        START,
        others,
    )

    def attempt(number: int) -> bool:
        try:
            invoice_issue(actor=OPERATOR, organization_id=others[number % 8], period=OCTOBER)
        except Conflict:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(8) as threads:
        issued = list(threads.map(attempt, range(16)))
    assert sum(issued) == 8
    numbers = [number for (number,) in rows("SELECT number FROM invoices ORDER BY number")]
    assert numbers == list(range(1, 9))


def test_nobody_changes_a_document(month: Month) -> None:
    issue(month)
    changes = (
        "UPDATE invoices SET total_cents = 1, net_cents = 1, tax_cents = 0",
        "DELETE FROM invoices",
        "TRUNCATE invoices CASCADE",
        "UPDATE document_numbers SET last = 7",
    )
    for change in changes:
        with psycopg.connect(dsn("default"), autocommit=True) as connection:
            scope = "{" + str(month.cast.acme.id) + "}"
            connection.execute("SELECT set_config('app.orgs', %s, false)", [scope])
            with pytest.raises(psycopg.Error):
                connection.execute(change.encode())
    for change in changes[:3]:
        with pytest.raises(psycopg.errors.RestrictViolation):
            rows(change)


def test_a_document_is_seen_in_its_organization_alone(month: Month) -> None:
    cast, made = month.cast, issue(month)
    assert [one.invoice.title for one in _listed(month)] == ["INV-000001"]
    with pytest.raises(ObjectDoesNotExist):
        invoice_get(actor=cast.charlie, organization_id=cast.acme.id, invoice_id=made.id)
    with pytest.raises(ObjectDoesNotExist):
        invoice_get(actor=cast.charlie, organization_id=cast.other.id, invoice_id=made.id)
    with pytest.raises(PermissionDenied):
        invoice_get(actor=cast.bob, organization_id=cast.acme.id, invoice_id=made.id)


def _listed(month: Month) -> list[Standing]:
    acme = month.cast.acme.id
    return invoice_list(actor=month.cast.alice, organization_id=acme).rows


def test_a_full_credit_note_gives_back_everything(month: Month) -> None:
    acme = month.cast.acme.id
    draft = ProfileDraft(tax_basis_points=825, tax_jurisdiction="US-NY")
    billing_profile_set(actor=OPERATOR, organization_id=acme, draft=draft)
    made = issue(month)
    with pytest.raises(PermissionDenied):
        credit_note_issue(actor=month.cast.alice, invoice=made, reason="mine")
    part = booked(
        credit_note_issue(
            actor=month.cast.stella, invoice=made, reason="one line", amounts_nano={2: 7_000_001}
        )
    )
    rest = booked(credit_note_issue(actor=month.cast.stella, invoice=made, reason="the rest"))
    assert [part.title, rest.title] == ["CN-000001", "CN-000002"]
    assert part.corrects == rest.corrects == made
    # What the invoice gave back of September's usage stays given.
    september, *_ = month.corrections(acme)
    assert part.subtotal_nano + rest.subtotal_nano == made.subtotal_nano + september.amount
    more_cents = part.total_cents + rest.total_cents - made.total_cents
    assert abs(more_cents * NANO_PER_CENT - september.amount * 1.0825) <= 2 * NANO_PER_CENT
    assert owed_nano(month) == -more_cents * NANO_PER_CENT
    with pytest.raises(ValidationError, match="Nothing remains"):
        credit_note_issue(actor=month.cast.stella, invoice=made, reason="again")
    found = invoice_found(actor=month.cast.alice, organization_id=acme, invoice_id=made.id)
    assert (found.standing.words, found.standing.open_cents) == ("credited", -more_cents)


@pytest.mark.parametrize(("position", "nano"), [(1, 10**15), (1, 0), (1, -5), (999, 5)])
def test_no_more_than_a_line_is_given_back(month: Month, position: int, nano: int) -> None:
    made = issue(month)
    with pytest.raises(ValidationError):
        credit_note_issue(
            actor=month.cast.stella, invoice=made, reason="odd", amounts_nano={position: nano}
        )
    assert rows("SELECT count(*) FROM invoices WHERE kind = 'credit_note'") == [(0,)]


def test_a_credit_in_the_month_is_a_line_of_its_own(month: Month) -> None:
    """Booked now, so it stands on the draft of this month and not on October's invoice."""
    cast, acme = month.cast, month.cast.acme.id
    wallet_grant(
        actor=cast.stella,
        organization_id=acme,
        gift=Gift(kind=GrantKind.CREDIT, amount_nano=5_000_000_000, reason="an outage"),
        form=uuid7(),
        becomes_prepaid=True,
    )
    issue(month)
    ((booked_at,),) = rows(
        "SELECT booked_at FROM journal_entries WHERE kind = 'credit' AND booked_at > %s", YEAR_AFTER
    )
    draft = invoice_draft(actor=cast.alice, organization_id=acme, period=period_of(booked_at))
    # What the invoice itself booked is on no other document.
    (line,) = lines_read(draft.lines)
    assert (line.kind, line.amount_pico) == (LineKind.CORRECTION, -5_000_000_000_000)
    assert "an outage" in line.words
    assert (draft.number, draft.title, draft.asked_cents < 0) == (0, "Draft", True)


def test_a_prepaid_month_is_a_statement_with_nothing_due(month: Month) -> None:
    """As if Other had been prepaid in October: its lines debit the wallet."""
    cast, other = month.cast, month.cast.other.id
    wallet_grant(
        actor=cast.stella,
        organization_id=other,
        gift=Gift(kind=GrantKind.TOPUP, amount_nano=900_000_000_000, reason="bank transfer"),
        form=uuid7(),
        becomes_prepaid=True,
    )
    rows("ALTER TABLE transfers DISABLE TRIGGER append_only")
    rows("ALTER TABLE journal_entries DISABLE TRIGGER append_only")
    rows("DELETE FROM journal_entries WHERE organization = %s AND kind = 'credit'", other)
    rows(
        "UPDATE transfers SET debit = %s WHERE organization = %s",
        accounts.wallet(other),
        other,
    )
    # Its gateway's clock is ahead of the database's: the id says November, the booking October.
    moved = rows(
        "UPDATE transfers SET request = request_floor(%s) WHERE organization = %s"
        " AND kind = 'settle' AND booked_at = (SELECT max(booked_at) FROM transfers"
        " WHERE organization = %s AND kind = 'settle' AND booked_at < %s) RETURNING slot",
        END + timedelta(milliseconds=20),
        other,
        other,
        END,
    )
    assert moved == [(1,)]
    made = invoice_issue(actor=cast.charlie, organization_id=other, period=OCTOBER)
    assert (made.kind, made.title) == (DocumentKind.STATEMENT, "ST-000001")
    assert made.subtotal_nano == made.prepaid_nano == month.charged(other)
    assert made.total_cents == 0
    assert rows(
        "SELECT kind FROM journal_entries WHERE organization = %s AND booked_at > %s",
        other,
        YEAR_AFTER,
    ) == [("topup",)]


def test_files_are_the_same_bytes_at_every_print(month: Month) -> None:
    cast, made = month.cast, issue(month)
    again = invoice_get(actor=cast.alice, organization_id=cast.acme.id, invoice_id=made.id)
    assert invoice_pdf(made) == invoice_pdf(again)
    assert invoice_pdf(made).startswith(b"%PDF-")
    assert invoice_csv(made) == invoice_csv(again)
    assert document_digest(made) == document_digest(again) == bytes(again.digest)


def test_the_csv_file_adds_up_and_guards_names(month: Month) -> None:
    made = issue(month)
    head, *body = invoice_csv(made).splitlines()
    assert head.startswith("document,period,line,kind")
    picos = [int(row.rpartition(",")[2].replace(".", "")) for row in body]
    assert sum(picos[:-1]) == picos[-1] == made.total_cents * NANO_PER_CENT * 1_000
    # A project's name that begins with a minus is no formula.
    assert any('"\'-2+3, ""ünï"" text"' in row for row in body)


def test_what_is_paid_or_late_shows(month: Month) -> None:
    cast, acme, made = month.cast, month.cast.acme.id, issue(month)
    seen = [
        Standing(made, 0, 0, made.due_on + timedelta(days=late)).stage
        for late in (-1, 0, 1, 13, 14, 30)
    ]
    assert seen == [
        Stage.CURRENT,
        Stage.DUE,
        Stage.OVERDUE_1,
        Stage.OVERDUE_1,
        Stage.OVERDUE_2,
        Stage.OVERDUE_3,
    ]
    open_before = open_invoices(actor=cast.alice, organization_id=acme)
    assert [one.open_cents for one in open_before] == [made.total_cents]
    assert worst(open_before) == Stage.CURRENT
    payment_record(actor=cast.stella, invoice=made, amount_cents=100, reference="bank 1")
    with pytest.raises(Conflict):
        payment_record(actor=cast.stella, invoice=made, amount_cents=100, reference="bank 1")
    rest = made.total_cents - 100
    payment_record(actor=cast.stella, invoice=made, amount_cents=rest, reference="bank 2")
    assert open_invoices(actor=cast.alice, organization_id=acme) == []
    assert owed_nano(month) == 0
    assert [one.words for one in _listed(month)] == ["paid"]
