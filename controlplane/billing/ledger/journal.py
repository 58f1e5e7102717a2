"""Booking what is no request: top-ups, credits, payments, corrections, the cost of GPUs. Money
moves nowhere else.

Who may book what is decided by the services that call this; each booking is audited here. What GPUs
cost is one entry for each pool and day that has ended.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import NotRequired, TypedDict, Unpack

from django.core.exceptions import ValidationError
from django.db import DatabaseError

from controlplane.billing.ledger.accounts import PAYABLE_GPU, PLATFORM, account_text, cogs, group_of
from controlplane.billing.ledger.models import EntryKind, JournalEntry
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.errors.body import Conflict
from controlplane.core.jobs.each import each_alone
from controlplane.core.models import uuid7
from controlplane.core.permissions import organization_scope
from controlplane.fleet.hours import PoolDay, pool_days

AMOUNT_NANO_MAX = 10**18
TEXT_CHARS_MAX = 500
OTHER_CONTENT = "SL409"
WRONG_FIELD = "SL422"
_BOOK = "SELECT * FROM ledger_journal(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
# Gateways add a node's time every half minute; after this nothing more comes to a day.
GRACE = timedelta(minutes=10)
# A worker that was away longer leaves days to be booked by hand: `costs_book(days=...)`.
DAYS_BACK = 40
DAY = timedelta(days=1)


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


class CostJob:
    """Who books, as the audit names it."""

    actor_id: uuid.UUID | None = None
    actor_label = "gpu costs"


def costs_book(now: datetime | None = None, *, days: int = DAYS_BACK) -> int:
    """Book each ended day and pool that cost something and is not on the books; returns how many.

    Dr `cogs:<pool>`, Cr `payable:gpu`. Repeats find their entry by its key and book nothing.
    """
    ended = (now or datetime.now(UTC)) - GRACE
    end = ended.replace(hour=0, minute=0, second=0, microsecond=0)
    known = _booked(end - days * DAY)
    due = [
        each
        for each in pool_days(start=end - days * DAY, end=end)
        if each.cost_nano and _key(each) not in known
    ]
    return len(each_alone("book_costs", due, _book))


def _book(each: PoolDay) -> None:
    journal_book(
        organization=PLATFORM,
        kind=EntryKind.COGS,
        debit=cogs(each.pool),
        credit=PAYABLE_GPU,
        nano=each.cost_nano,
        reason=f"GPU time of pool {each.pool} on {each.day}",
        reference=str(each.day),
        idempotency=_key(each),
        actor=CostJob(),
    )


def _key(each: PoolDay) -> str:
    return f"cogs:{each.pool}:{each.day}"


def _booked(since: datetime) -> set[str]:
    """Keys of what is on the books already: a day is booked after it, never before."""
    with organization_scope([PLATFORM]):
        rows = JournalEntry.objects.filter(
            organization=PLATFORM, kind=EntryKind.COGS, booked_at__gte=since
        )
        return set(rows.values_list("idempotency", flat=True))
