"""What a month would be invoiced for: made from the hours and the journal, changing nothing.

A draft is a document that is not saved; issuing saves exactly what the draft of an ended month is.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec
from django.core.exceptions import ValidationError
from django.db.models import Q, Sum

from controlplane.billing.access import may_see_money
from controlplane.billing.documents.lines import Line, LineKind, sum_pico
from controlplane.billing.documents.models import BillingProfile, DocumentKind, Invoice
from controlplane.billing.documents.services import OWN, document_make
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.hours import Dimension, HourSum, hours, sealed_through
from controlplane.billing.ledger.models import POSTING_KINDS, EntryKind, JournalEntry, Transfer
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX, ID_MARGIN
from controlplane.billing.months.periods import Period
from controlplane.billing.payments.selectors import left_over_cents
from controlplane.billing.wallets.selectors import has_wallet
from controlplane.core.audit.entries import Actor
from controlplane.core.scope import organization_scope
from controlplane.kernel.money import PICO_PER_NANO
from controlplane.telemetry.selectors_requests import id_floor
from controlplane.tenants.selectors_names import names_of

LINES_MAX = 10_000
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
    tokens: Counter[tuple[str, str, str, int, str]] = Counter()
    nano = pico = 0
    by: tuple[Dimension, ...] = ("project", "model", "price_version")
    for found in hours(organizations=[organization_id], start=period.start, end=period.end, by=by):
        nano += found.nano
        pico += found.cost_pico
        for kind, count, rate in _buckets(found):
            if count:
                project = found.project or uuid.UUID(int=0)
                name = projects.get(project, project.hex)
                tokens[name, project.hex, found.model or "", rate, kind] += count
    for (name, project_hex, model, rate, kind), count in sorted(tokens.items(), key=_order):
        yield Line(
            position=0,
            kind=LineKind.USAGE,
            project=project_hex,
            project_name=name,
            model=model,
            token_type=kind,
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


def _buckets(found: HourSum) -> Iterator[tuple[str, int, int]]:
    yield "uncached_input", found.uncached, found.input_pico or 0
    yield "cached_input", found.cached, found.cached_pico or 0
    yield "output", found.output, found.output_pico or 0


_KINDS = ("uncached_input", "cached_input", "output")


def _order(item: tuple[tuple[str, str, str, int, str], int]) -> tuple[str, str, str, int, int]:
    (name, project, model, rate, kind), _ = item
    return name, project, model, _KINDS.index(kind), rate


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
        signed = _signed(organization_id, entry)
        if signed:
            yield Line(
                position=0,
                kind=LineKind.CORRECTION,
                words=f"{entry.get_kind_display()}: {entry.reason}",
                amount_pico=signed * PICO_PER_NANO,
                account=entry.credit if signed > 0 else entry.debit,
                entry=entry.id.hex,
            )


def _signed(organization_id: uuid.UUID, entry: JournalEntry) -> int:
    """What an entry adds to the bill; credit put into a wallet is no part of any bill."""
    owed = accounts.receivable(organization_id)
    wallet = accounts.wallet(organization_id)
    mine = {owed, wallet} if entry.kind in _WALLET else {owed}
    return entry.amount * ((entry.debit in mine) - (entry.credit in mine))


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
