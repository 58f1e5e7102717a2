"""Credit notes: documents that give back an invoice or lines of it, never more than it asked.

Each line goes back to the account that it came from; tax and rounding follow in proportion, and the
last note of an invoice takes exactly what is left of them. What was reversed is not given again.
"""

import uuid
from collections import Counter
from collections.abc import Mapping

import msgspec
from django.core.exceptions import ValidationError

from controlplane.billing.approvals import services
from controlplane.billing.approvals.models import REASON_CHARS_MAX, GrantKind, WalletGrant
from controlplane.billing.documents.lines import (
    BASIS_POINTS,
    NANO_PER_CENT,
    Line,
    LineKind,
    half_even,
    lines_json,
    lines_read,
    sum_pico,
)
from controlplane.billing.documents.models import BillingProfile, DocumentKind, Invoice
from controlplane.billing.documents.services import (
    cents_book,
    document_book,
    document_keep,
    document_make,
)
from controlplane.billing.ledger import accounts
from controlplane.billing.ledger.models import EntryKind
from controlplane.billing.reversals.remaining import Left, credit_left, month_lock
from controlplane.core.audit.entries import Actor
from controlplane.core.errors.body import Conflict
from controlplane.core.models import uuid7
from controlplane.core.permissions import Action, organization_scope
from controlplane.kernel.money import PICO_PER_NANO, nano_from_pico
from controlplane.tenants.access import require


def credit_note_issue(
    *,
    actor: Actor,
    invoice: Invoice,
    reason: str,
    amounts_nano: Mapping[int, int] | None = None,
    form: uuid.UUID | None = None,
) -> Invoice | WalletGrant:
    """Give back an invoice: `amounts_nano` by position of the line, None for all that is left.

    `form` is the grant's id: sent twice, it is given once, and the grant is returned. Raises
    ValidationError that names the field. Returns the note with its own number, or the grant that
    waits for a second person.
    """
    require(actor, Action.CREDIT_GRANT)
    if invoice.kind != DocumentKind.INVOICE:
        raise ValidationError({"invoice": "Only invoices can be credited."})
    reason = services.reason_clean(reason)
    with organization_scope([invoice.organization]):
        services.one_at_a_time(invoice.organization)
        month_lock(invoice.organization, invoice.period)
        lines = None if amounts_nano is None else [list(pair) for pair in amounts_nano.items()]
        if form is not None and (sent := WalletGrant.objects.filter(id=form).first()) is not None:
            if (sent.subject, sent.reason, sent.terms) != (invoice.id, reason, {"lines": lines}):
                raise Conflict(services.OTHER_FORM)
            return sent
        note = _draft(invoice, amounts_nano)
        wish = WalletGrant(
            id=form or uuid7(),
            organization=invoice.organization,
            kind=GrantKind.CREDIT_NOTE,
            amount_nano=_given_nano(note),
            reason=reason,
            subject=invoice.id,
            about=invoice.title,
            terms={"lines": lines},
        )
        return services.grant_ask(actor=actor, wish=wish, book=credit_note_book)


def credit_note_book(grant: WalletGrant) -> Invoice:
    """Issue the note that was wished for; inside the organization's scope.

    Raises ValidationError where less is left than was asked for.
    """
    invoice = Invoice.objects.get(id=services.subject_of(grant), organization=grant.organization)
    month_lock(invoice.organization, invoice.period)
    lines = grant.terms["lines"]
    made = _draft(invoice, None if lines is None else dict(lines))
    if _given_nano(made) != grant.amount_nano:
        told = "The remaining amount has changed. Refuse this request and create a new one."
        raise ValidationError({"grant": told})
    made.reason = grant.reason
    document_keep(services.asker_of(grant), made)
    _book(grant, made)
    return made


def _draft(invoice: Invoice, amounts_nano: Mapping[int, int] | None) -> Invoice:
    left = credit_left(invoice)
    return _note(invoice, left, _wanted(invoice, left, amounts_nano))


def _given_nano(note: Invoice) -> int:
    """What a note gives, for the limit of one person; a fraction of a cent counts as it is.

    What it puts back into the wallet lowers its sum, and is given all the same.
    """
    prepaid = sum_pico(line for line in lines_read(note.lines) if line.kind == LineKind.PREPAID)
    owed_nano = max(note.subtotal_nano, note.total_cents * NANO_PER_CENT)
    return max(1, owed_nano + max(0, nano_from_pico(-prepaid)))


def _wanted(invoice: Invoice, left: Left, amounts_nano: Mapping[int, int] | None) -> dict[int, int]:
    if amounts_nano is None:
        wanted = {position: pico for position, pico in left.lines.items() if pico}
        if left.pico <= 0:
            raise ValidationError({"invoice": "Nothing remains to be credited."})
        return wanted
    wanted, rooms = {}, left.rooms(invoice)
    for position, nano in amounts_nano.items():
        if position not in rooms:
            raise ValidationError({"lines": f"Line {position} not found."})
        pico = nano * PICO_PER_NANO
        room = rooms[position]
        # A line's last fraction of a nano-USD goes with the rest of it.
        if 0 < room < pico < room + PICO_PER_NANO:
            pico = room
        if not 0 < pico <= room:
            told = f"Line {position} has {max(0, room) // PICO_PER_NANO} nano-USD left."
            raise ValidationError({"lines": told})
        wanted[position] = pico
    if not wanted:
        raise ValidationError({"lines": "Select at least one line."})
    if sum(wanted.values()) > left.pico:
        raise ValidationError({"lines": "The amount is more than remains of the invoice."})
    return wanted


def _note(invoice: Invoice, left: Left, wanted: Mapping[int, int]) -> Invoice:
    lines = [
        _part(line, wanted[line.position])
        for line in lines_read(invoice.lines)
        if line.position in wanted
    ]
    profile = BillingProfile(organization=invoice.organization)
    made = document_make(
        organization_id=invoice.organization,
        kind=DocumentKind.CREDIT_NOTE,
        period=invoice.period,
        lines=[],
        profile=profile,
        name="",
    )
    whole = sum_pico(lines)
    made.lines = lines_json(lines)
    made.subtotal_nano = nano_from_pico(whole)
    made.net_cents = half_even(made.subtotal_nano, NANO_PER_CENT)
    made.tax_cents = half_even(made.net_cents * invoice.tax_basis_points, BASIS_POINTS)
    # Cents of what was reversed are given back by the invoice on which the reversal stands.
    if whole == left.pico and not left.reversed_pico and not left.kept_cents:
        made.net_cents, made.tax_cents = left.net_cents, left.tax_cents
    kept_tax_cents = -(-left.kept_cents * invoice.tax_basis_points // BASIS_POINTS)
    made.net_cents = min(made.net_cents, left.net_cents + left.kept_cents)
    made.tax_cents = min(made.tax_cents, left.tax_cents + kept_tax_cents)
    made.total_cents = made.net_cents + made.tax_cents
    made.tax_basis_points = invoice.tax_basis_points
    made.tax_jurisdiction = invoice.tax_jurisdiction
    made.customer, made.issuer = invoice.customer, invoice.issuer
    made.due_on = made.issued_on
    made.corrects = invoice
    return made


def _part(line: Line, pico: int) -> Line:
    if pico == line.amount_pico or line.kind != LineKind.USAGE:
        return msgspec.structs.replace(line, amount_pico=pico)
    words = f"{line.model}, part of {line.quantity:,} tokens"
    return msgspec.structs.replace(
        line,
        kind=LineKind.CORRECTION,
        words=f"{line.project_name}: {words}",
        amount_pico=pico,
        quantity=0,
        unit_pico=0,
        token_type="",
    )


def _book(grant: WalletGrant, note: Invoice) -> None:
    """The invoice's bookings the other way; what no account has a whole nano-USD of is rounding."""
    actor, approved_by = services.asker_of(grant), grant.decided_label or None
    owed = accounts.receivable(note.organization)
    by_account: Counter[str] = Counter()
    for line in lines_read(note.lines):
        by_account[_account(note.organization, line)] += line.amount_pico
    booked = 0
    for number, (account, pico) in enumerate(sorted(by_account.items())):
        nano = nano_from_pico(pico)
        if account == accounts.ROUNDING:
            continue
        booked += nano
        document_book(
            actor,
            note,
            approved_by=approved_by,
            part=str(number),
            kind=EntryKind.ADJUSTMENT,
            debit=account,
            credit=owed,
            nano=nano,
            reason=f"{note.title} credits {note.corrects}: {note.reason}"[:REASON_CHARS_MAX],
        )
    rounding_nano = note.net_cents * NANO_PER_CENT - booked
    cents_book(actor, note, rounding_nano=rounding_nano, approved_by=approved_by)


def _account(organization: uuid.UUID, line: Line) -> str:
    if line.kind == LineKind.PREPAID:
        return accounts.wallet(organization)
    return line.account or accounts.ROUNDING
