"""Booking what is no request: top-ups, credits, payments, corrections. Money moves nowhere else.

Who may book what is decided by the services that call this; each booking is audited here.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NotRequired, TypedDict, Unpack

from django.core.exceptions import ValidationError
from django.db import DatabaseError

from controlplane.billing.ledger.accounts import account_text, group_of
from controlplane.billing.ledger.models import EntryKind, JournalEntry
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.errors.conflict import Conflict
from controlplane.core.models import uuid7
from controlplane.core.scope import organization_scope

AMOUNT_NANO_MAX = 10**18
TEXT_CHARS_MAX = 500
OTHER_CONTENT = "SL409"
WRONG_FIELD = "SL422"
_BOOK = "SELECT * FROM ledger_journal(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"


class Booking(TypedDict):
    """One entry: `nano` goes from the credit account to the debit account.

    `reverses` is an entry or a request, for kind `reversal` alone. The same `idempotency` key books
    once per organization. `approved_by` is the label of a second person.
    """

    organization: uuid.UUID
    kind: EntryKind
    debit: str
    credit: str
    nano: int
    reason: str
    idempotency: str
    actor: Actor
    reference: NotRequired[str]
    reverses: NotRequired[uuid.UUID | None]
    approved_by: NotRequired[str | None]


def journal_book(**booking: Unpack[Booking]) -> JournalEntry:
    """Book an entry and what it moves in a wallet, in one transaction.

    The same key and content returns the first entry; another content raises Conflict, what cannot
    be booked ValidationError that names the field.
    """
    _check(booking)
    organization, actor = booking["organization"], booking["actor"]
    made_id = uuid7()
    values = [
        made_id,
        organization,
        EntryKind(booking["kind"]).value,
        booking["debit"],
        booking["credit"],
        booking["nano"],
        booking["reason"],
        booking.get("reference", ""),
        booking.get("reverses"),
        booking["idempotency"],
        actor.actor_label,
        booking.get("approved_by") or "",
    ]
    with fields_named(), organization_scope([organization]):
        (entry,) = JournalEntry.objects.raw(_BOOK, values)
        if entry.id == made_id:
            audit_record(
                actor,
                f"journal.{entry.kind}",
                subject=entry,
                organization_id=organization,
                detail={
                    "debit": account_text(entry.debit),
                    "credit": account_text(entry.credit),
                    "nano": entry.amount,
                    "reason": entry.reason,
                    "reference": entry.reference,
                    "approved_by": entry.approved_by,
                },
            )
    return entry


@contextmanager
def fields_named() -> Iterator[None]:
    """Errors of the ledger's functions as the services' own: 'field: what is wrong'."""
    try:
        yield
    except DatabaseError as error:
        state = getattr(error.__cause__, "sqlstate", None)
        if state not in (OTHER_CONTENT, WRONG_FIELD):
            raise
        field, _, told = str(error).partition("\n")[0].partition(": ")
        raised = Conflict if state == OTHER_CONTENT else ValidationError
        raise raised({field: f"{told[:1].upper()}{told[1:]}."}) from error


def _check(booking: Booking) -> None:
    if not 1 <= booking["nano"] <= AMOUNT_NANO_MAX:
        raise ValidationError({"nano": f"Must be 1 to {AMOUNT_NANO_MAX} nano-USD."})
    for field, account in (("debit", booking["debit"]), ("credit", booking["credit"])):
        try:
            group_of(account)
        except ValueError:
            raise ValidationError({field: f"Account {account!r} not found."}) from None
    if booking["debit"] == booking["credit"]:
        raise ValidationError({"credit": "Must differ from the debit account."})
    for field, text in (("reason", booking["reason"]), ("idempotency", booking["idempotency"])):
        if not 1 <= len(text.strip()) <= TEXT_CHARS_MAX:
            raise ValidationError({field: f"Must have 1 to {TEXT_CHARS_MAX} characters."})
    if len(booking.get("reference", "")) > TEXT_CHARS_MAX:
        raise ValidationError({"reference": f"Must have at most {TEXT_CHARS_MAX} characters."})
    if (booking["kind"] == EntryKind.REVERSAL) != (booking.get("reverses") is not None):
        raise ValidationError(
            {"reverses": "Allowed only for reversals, which must name what they reverse."}
        )
