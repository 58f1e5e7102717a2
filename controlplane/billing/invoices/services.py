"""What a month would be invoiced for, made from the hours and the journal, and issuing it.

A draft is a document that is not saved and changes nothing; issuing saves exactly what the draft of
an ended month is.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec
from django.core.exceptions import ValidationError
from django.db.models import Q, Sum

from controlplane.billing.access import may_see_money
from controlplane.billing.approvals.services import one_at_a_time
from controlplane.billing.documents.lines import Line, LineKind, sum_pico
from controlplane.billing.documents.models import BillingProfile, DocumentKind, Invoice
from controlplane.billing.documents.services import OWN, cents_book, document_keep, document_make
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.hours import Dimension, HourSum, hours, sealed_through
from controlplane.billing.ledger.models import POSTING_KINDS, EntryKind, JournalEntry, Transfer
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX, ID_MARGIN
from controlplane.billing.months.periods import Period, open_because
from controlplane.billing.payments.selectors import left_over_cents
from controlplane.billing.wallets.selectors import has_wallet
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action, organization_scope
from controlplane.kernel.money import PICO_PER_NANO
from controlplane.telemetry.selectors_requests import id_floor
from controlplane.tenants.access import require
from controlplane.tenants.selectors import names_of

LINES_MAX = 10_000
KINDS = ("uncached_input", "cached_input", "output")
_OWED = (EntryKind.CREDIT, EntryKind.ADJUSTMENT, EntryKind.REVERSAL)
_WALLET = (EntryKind.ADJUSTMENT, EntryKind.REVERSAL)
_DAY = timedelta(days=1)


def invoice_draft(*, actor: Actor, organization_id: uuid.UUID, period: Period) -> Invoice:
    """The month's document as it stands now, unsaved and without a number.

    Covers what is sealed; of a month that has ended and is sealed that is all there will ever be.
    """
    may_see_money(actor, organization_id)
    until = min(period.end, sealed_through() or period.start)
    with organization_scope([organization_id]):
        name, projects, _ = names_of(organization_id)
        profile = BillingProfile.objects.filter(organization=organization_id).first()
        entries = list(_entries(organization_id, period))
        prepaid = has_wallet(organization_id)
    lines = [*_usage_lines(organization_id, period, projects)]
    lines += _correction_lines(organization_id, entries)
    wallet_nano = _wallet_entries_nano(organization_id, entries)
    if prepaid:
        wallet_nano += _wallet_charged_nano(organization_id, period.start, until)
    if wallet_nano:
        words = "Paid from the prepaid balance"
        amount = -wallet_nano * PICO_PER_NANO
        lines.append(Line(position=0, kind=LineKind.PREPAID, words=words, amount_pico=amount))
    if len(lines) > LINES_MAX:
        told = f"The invoice has {len(lines):,} lines; the maximum is {LINES_MAX:,}."
        raise ValidationError({"period": told})
    numbered = [msgspec.structs.replace(line, position=at) for at, line in enumerate(lines, 1)]
    owed = sum_pico(numbered) != 0 or not wallet_nano
    kind = DocumentKind.INVOICE if owed else DocumentKind.STATEMENT
    made = document_make(
        organization_id=organization_id,
        kind=kind,
        period=period.name,
        lines=numbered,
        profile=profile or BillingProfile(organization=organization_id),
        name=name,
    )
    with organization_scope([organization_id]):
        credit_carry(made)
    return made


def credit_carry(made: Invoice) -> None:
    """Take what is left over of earlier invoices off an unsaved one; inside its scope.

    On the ledger nothing moves: both are on the account of what the customer owes.
    """
    if made.kind == DocumentKind.INVOICE:
        left = left_over_cents(made.organization)
        made.carried_cents = max(0, min(made.total_cents, left))


def _usage_lines(
    organization_id: uuid.UUID, period: Period, projects: dict[uuid.UUID, str]
) -> Iterator[Line]:
    """Tokens by project, model, price and kind, and one line for what the ledger rounded."""
    # By name and id of the project, model, kind and rate: the order of the lines.
    tokens: Counter[tuple[str, str, str, int, int]] = Counter()
    nano = pico = 0
    by: tuple[Dimension, ...] = ("project", "model", "price_version")
    for found in hours(organizations=[organization_id], start=period.start, end=period.end, by=by):
        nano += found.nano
        pico += found.cost_pico
        for kind, (count, rate) in enumerate(_buckets(found)):
            if count:
                project = found.project or uuid.UUID(int=0)
                name = projects.get(project, project.hex)
                tokens[name, project.hex, found.model or "", kind, rate] += count
    for (name, project_hex, model, kind, rate), count in sorted(tokens.items()):
        yield Line(
            position=0,
            kind=LineKind.USAGE,
            project=project_hex,
            project_name=name,
            model=model,
            token_type=KINDS[kind],
            quantity=count,
            unit_pico=rate,
            amount_pico=count * rate,
            account=accounts.revenue(model),
        )
    if nano * PICO_PER_NANO != pico:
        yield Line(
            position=0,
            kind=LineKind.ROUNDING,
            words="Rounding of each charge to the ledger's nano-USD",
            amount_pico=nano * PICO_PER_NANO - pico,
        )


def _buckets(found: HourSum) -> Iterator[tuple[int, int]]:
    """Tokens of each of `KINDS`, and what one of them costs."""
    yield found.uncached, found.input_pico or 0
    yield found.cached, found.cached_pico or 0
    yield found.output, found.output_pico or 0


def _entries(organization_id: uuid.UUID, period: Period) -> Iterator[JournalEntry]:
    """What the journal has for the month that concerns the customer and stands on no document."""
    mine = [accounts.receivable(organization_id), accounts.wallet(organization_id)]
    rows = JournalEntry.objects.filter(
        Q(debit__in=mine) | Q(credit__in=mine),
        organization=organization_id,
        kind__in=_OWED,
        booked_at__gte=period.start,
        booked_at__lt=period.end,
    ).exclude(idempotency__startswith=OWN)
    yield from rows.order_by("booked_at", "id")[: LINES_MAX + 1]


def _correction_lines(organization_id: uuid.UUID, entries: list[JournalEntry]) -> Iterator[Line]:
    for entry in entries:
        # What an entry adds to the bill; credit put into a wallet is no part of any bill.
        owed = accounts.receivable(organization_id)
        wallet = accounts.wallet(organization_id)
        mine = {owed, wallet} if entry.kind in _WALLET else {owed}
        signed = entry.amount * ((entry.debit in mine) - (entry.credit in mine))
        if signed:
            yield Line(
                position=0,
                kind=LineKind.CORRECTION,
                words=f"{entry.get_kind_display()}: {entry.reason}",
                amount_pico=signed * PICO_PER_NANO,
                account=entry.credit if signed > 0 else entry.debit,
                entry=entry.id.hex,
            )


def _wallet_entries_nano(organization_id: uuid.UUID, entries: list[JournalEntry]) -> int:
    """How much of the corrections the wallet bears."""
    wallet = accounts.wallet(organization_id)
    return sum(
        entry.amount * ((entry.debit == wallet) - (entry.credit == wallet))
        for entry in entries
        if entry.kind in _WALLET
    )


def _wallet_charged_nano(organization_id: uuid.UUID, start: datetime, until: datetime) -> int:
    """Charges to the wallet booked in [start, until): a day of requests at a time."""
    total, day = 0, start - BOOKED_DAYS_MAX * _DAY
    while day < until + ID_MARGIN:
        with organization_scope([organization_id]):
            found = Transfer.objects.filter(
                organization=organization_id,
                debit=accounts.wallet(organization_id),
                request__gte=id_floor(day),
                request__lt=id_floor(day + _DAY),
                booked_at__gte=start,
                booked_at__lt=until,
                kind__in=POSTING_KINDS,
            ).aggregate(nano=Sum("amount"))
        total += int(found["nano"] or 0)
        day += _DAY
    return total


def invoice_issue(*, actor: Actor, organization_id: uuid.UUID, period: Period) -> Invoice:
    """Number and keep the document of a month that has ended.

    Raises ValidationError where the month still goes on or nothing was charged, Conflict where it
    was issued before.
    """
    require(actor, Action.INVOICE_ISSUE, organization_id)
    if (open_yet := open_because(period)) is not None:
        raise ValidationError({"period": f"{period.name} cannot be invoiced: {open_yet}."})
    made = invoice_draft(actor=actor, organization_id=organization_id, period=period)
    if not made.lines:
        raise ValidationError({"period": f"There are no charges in {period.name}."})
    with organization_scope([organization_id]):
        # Two invoices at once, of two months, do not both carry the same on.
        one_at_a_time(organization_id)
        credit_carry(made)
        document_keep(actor, made)
        rounded = made.kind == DocumentKind.INVOICE
        cents_book(actor, made, rounding_nano=made.rounding_nano if rounded else 0)
    return made
