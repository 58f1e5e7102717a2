"""The journal of the seeded month: what is booked there besides requests; see `month.py`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

import psycopg

from controlplane.billing.ledger.accounts import adjustments, cash, promo, receivable, revenue
from tests.support.money import superuser_dsn

CHARGING = ("credit", "adjustment", "reversal", "tax", "invoice_rounding")
USD = 1_000_000_000
START = datetime(2025, 10, 1, tzinfo=UTC)
END = datetime(2025, 11, 1, tzinfo=UTC)
_INSERT = """
    INSERT INTO journal_entries (id, organization, kind, debit, credit, amount, reason, reference,
                                 reverses, booked_at, idempotency, actor_label, approved_by,
                                 payload_hash)
    VALUES (%(id)s, %(organization)s, %(kind)s, %(debit)s, %(credit)s, %(amount)s, %(reason)s,
            %(reference)s, %(reverses)s, %(booked_at)s, %(id)s::text, 'finance@example.org', '',
            ledger_payload_hash(%(kind)s, %(debit)s, %(credit)s, %(amount)s, %(reason)s,
                                %(reference)s, %(reverses)s))
"""


class Charge(Protocol):
    """A transfer, as far as it matters here."""

    @property
    def request(self) -> uuid.UUID: ...
    @property
    def organization(self) -> uuid.UUID: ...
    @property
    def model(self) -> str: ...
    @property
    def amount(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def booked_at(self) -> datetime: ...


class Entry(NamedTuple):
    """One entry as it was booked."""

    id: uuid.UUID
    organization: uuid.UUID
    kind: str
    debit: str
    credit: str
    amount: int
    reason: str
    reference: str
    reverses: uuid.UUID | None
    booked_at: datetime

    @property
    def owed(self) -> int:
        """What it adds to what the organization owes."""
        mine = receivable(self.organization)
        return self.amount * ((self.debit == mine) - (self.credit == mine))


def entries_of_month(acme: uuid.UUID, other: uuid.UUID, lines: Sequence[Charge]) -> list[Entry]:
    """The same entries at every run, by the time of their booking."""
    mine = [line for line in lines if line.organization == acme and line.kind == "settle"]
    september = next(line for line in mine if line.booked_at < START)
    first, second = [line for line in mine if line.booked_at >= START][2:4]
    at = START + timedelta(hours=9, microseconds=7)
    owes, other_owes = receivable(acme), receivable(other)
    back = "billed twice"
    told: list[tuple[datetime, str, str, str, int, str, uuid.UUID | None]] = [
        (at, "reversal", revenue(september.model), owes, september.amount, back, september.request),
        (at + timedelta(days=5), "reversal", revenue(first.model), owes, first.amount, back,
         first.request),
        (at + timedelta(days=19), "reversal", revenue(second.model), owes, second.amount // 3,
         "a third came too late", second.request),
        (at + timedelta(days=24), "credit", promo(acme), owes, 5 * USD, "=goodwill", None),
        (at + timedelta(days=25), "adjustment", adjustments("metering"), owes, 3_200_000_000,
         "-3.20 for the outage", None),
        (at + timedelta(days=27), "payment", cash("bank"), owes, 10 * USD, "transfer", None),
        (END - timedelta(microseconds=1), "adjustment", owes, adjustments("metering"),
         1_234_567_891, "a meter stood still", None),
        (END, "adjustment", owes, adjustments("metering"), 77, "November's own", None),
        (at + timedelta(days=9), "credit", promo(other), other_owes, 2 * USD, "welcome", None),
    ]  # fmt: skip
    found = []
    for number, (when, kind, debit, credit, amount, reason, reverses) in enumerate(told):
        organization = other if other_owes in (debit, credit) else acme
        made = uuid.UUID(int=int(when.timestamp() * 1_000) << 80 | 7 << 76 | 2 << 62 | number)
        found.append(
            Entry(
                *(made, organization, kind, debit, credit, amount, reason),
                *(f"ticket {number}", reverses, when),
            )
        )
    return sorted(found, key=lambda entry: (entry.booked_at, entry.id))


def book_entries(entries: Sequence[Entry]) -> None:
    """Insert them with their own times, as no service can."""
    with psycopg.connect(superuser_dsn()) as connection, connection.cursor() as cursor:
        cursor.executemany(_INSERT, [entry._asdict() for entry in entries])
