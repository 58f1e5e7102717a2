"""Closing a month: control totals by account and a hash over every line and entry, then no more.

Read window by window in pages, so that no transaction is long and no month too big.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
from django.core.exceptions import ValidationError
from django.db import connection

from controlplane.billing.ledger.journal import fields_named
from controlplane.billing.ledger.models import POSTING_KINDS
from controlplane.billing.ledger.reconcile import reconcile_requests
from controlplane.billing.ledger.seals import LINE_COLUMNS, line_text
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX, ID_MARGIN
from controlplane.billing.ledger.windows import windows
from controlplane.billing.months.models import PeriodClose
from controlplane.billing.months.periods import Period, close_of, open_because
from controlplane.core.audit.entries import Actor, audit_record
from controlplane.core.models import uuid7
from controlplane.core.scope import organization_scope
from controlplane.tenants.models import Organization

PAGE_ROWS = 5_000
_CLOSE = "SELECT * FROM ledger_period_close(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
_LINES = f"""
    SELECT {LINE_COLUMNS}, booked_at FROM transfers
    WHERE organization = %s AND request >= request_floor(%s) AND request < request_floor(%s)
      AND booked_at >= %s AND booked_at < %s AND (booked_at, request, slot) > (%s, %s, %s)
    ORDER BY booked_at, request, slot LIMIT {PAGE_ROWS}
"""
_ENTRIES = f"""
    SELECT id, kind, debit, credit, amount, organization, reason, reference, reverses, idempotency,
           actor_label, approved_by, (extract(epoch FROM booked_at) * 1000000)::bigint, booked_at
    FROM journal_entries
    WHERE organization = %s AND booked_at >= %s AND booked_at < %s AND (booked_at, id) > (%s, %s)
    ORDER BY booked_at, id LIMIT {PAGE_ROWS}
"""
_FIRST = uuid.UUID(int=0)
Read = Callable[[str, list[Any]], list[tuple[Any, ...]]]
Reached = Callable[[datetime | None], None]


@dataclass
class Control:
    """What a month amounts to; `totals` are [debited, credited] by account, of what posts."""

    transfers: int = 0
    entries: int = 0
    last_booked_at: datetime | None = None
    totals: dict[str, list[int]] = field(default_factory=dict)
    digest: bytes = b""

    def book(self, debit: str, credit: str, nano: int) -> None:
        self.totals.setdefault(debit, [0, 0])[0] += nano
        self.totals.setdefault(credit, [0, 0])[1] += nano

    def seen(self, booked_at: datetime) -> None:
        self.last_booked_at = max(self.last_booked_at or booked_at, booked_at)


def period_close_now(
    *, actor: Actor, organization: uuid.UUID, period: Period, reached: Reached | None = None
) -> PeriodClose:
    """Close a month, by who was found to may; closed already it is returned as it is.

    `reached` is called with the moment of booking up to which it is read, None while it is still
    compared. Raises ValidationError on `period` where it has not ended, is not sealed, or
    reconciliation found something; what it found is kept.
    """
    if (closed := close_of(organization, period)) is not None:
        return closed
    require_over(period)
    found = reconcile_requests(
        organization,
        period.start,
        period.end,
        compared=lambda: None if reached is None else reached(None),
    )
    if found.findings:
        told = f"Reconciliation found {found.findings} differences; see the Ledger page."
        raise ValidationError({"period": told})
    control = period_control(organization, period, _scoped(organization, reached))
    values = [
        uuid7(),
        organization,
        period.name,
        period.start,
        period.end,
        control.transfers,
        control.entries,
        msgspec.json.encode(control.totals).decode(),
        control.last_booked_at,
        control.digest,
        found.id,
        actor.actor_label,
    ]
    with fields_named(), organization_scope([organization]):
        (made,) = PeriodClose.objects.raw(_CLOSE, values)
        if made.id == values[0]:
            audit_record(
                actor,
                "period.close",
                subject=Organization.objects.get(id=organization),
                organization_id=organization,
                detail={
                    "period": period.name,
                    "transfers": control.transfers,
                    "entries": control.entries,
                    "digest": control.digest.hex(),
                },
            )
    return made


def period_control(organization: uuid.UUID, period: Period, read: Read) -> Control:
    """Totals and hash of a month, by any way to read rows that this organization may see."""
    control, digest = Control(), sha256()
    for row in _lines(organization, period, read):
        *columns, booked_at = row
        digest.update(line_text(tuple(columns)).encode() + b"\n")
        control.transfers += 1
        control.seen(booked_at)
        if row[2] in POSTING_KINDS:
            control.book(row[3], row[4], row[5])
    for row in _entries(organization, period, read):
        *columns, booked_at = row
        digest.update(msgspec.json.encode([str(value) for value in columns]) + b"\n")
        control.entries += 1
        control.seen(booked_at)
        control.book(row[2], row[3], row[4])
    control.totals = dict(sorted(control.totals.items()))
    control.digest = digest.digest()
    return control


def close_breach(close: PeriodClose, read: Read) -> str | None:
    """What is not as it was when a month was closed; None where all is."""
    control = period_control(close.organization, Period(close.period), read)
    kept = (close.transfers, close.entries, close.totals, bytes(close.digest))
    if kept == (control.transfers, control.entries, control.totals, control.digest):
        return None
    return f"{close.period} of {close.organization} does not match what was closed"


def _lines(organization: uuid.UUID, period: Period, read: Read) -> Iterator[tuple[Any, ...]]:
    for opens, closes in windows(organization, period.start, period.end):
        first = max(opens - timedelta(days=BOOKED_DAYS_MAX), datetime(1970, 1, 1, tzinfo=UTC))
        last: tuple[Any, ...] = (opens, _FIRST, -1)
        while page := read(_LINES, [organization, first, closes + ID_MARGIN, opens, closes, *last]):
            yield from page
            if len(page) < PAGE_ROWS:
                break
            last = (page[-1][-1], page[-1][0], page[-1][1])


def _entries(organization: uuid.UUID, period: Period, read: Read) -> Iterator[tuple[Any, ...]]:
    last: tuple[Any, ...] = (period.start, _FIRST)
    while page := read(_ENTRIES, [organization, period.start, period.end, *last]):
        yield from page
        if len(page) < PAGE_ROWS:
            return
        last = (page[-1][-1], page[-1][0])


def _scoped(organization: uuid.UUID, reached: Reached | None) -> Read:
    """Each page in a short transaction of its own."""

    def read(query: str, values: list[Any]) -> list[tuple[Any, ...]]:
        with organization_scope([organization]), connection.cursor() as cursor:
            cursor.execute(query, values)
            page = list(cursor.fetchall())
        if page and reached is not None:
            reached(page[-1][-1])
        return page

    return read


def require_over(period: Period) -> None:
    """Raises ValidationError on `period` where it has not ended or is not sealed."""
    if (open_yet := open_because(period)) is not None:
        raise ValidationError({"period": f"{period} cannot be closed yet: {open_yet}."})
