"""Closing a month: control totals by account and a hash over every line and entry, then no more.

Read window by window in pages, so that no transaction is long and no month too big. What is too
large for one answer is asked for here and read through by a worker. One that is killed leaves a
claim that runs out; whoever comes next begins again, and a month closes once whoever closes it.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from controlplane.billing.approvals.services import Asker
from controlplane.billing.ledger.hours import hours
from controlplane.billing.ledger.journal import fields_named
from controlplane.billing.ledger.models import POSTING_KINDS
from controlplane.billing.ledger.reconcile import reconcile_requests
from controlplane.billing.ledger.seals import LINE_COLUMNS, line_text
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX, ID_MARGIN, windows
from controlplane.billing.months.models import (
    ERROR_CHARS_MAX,
    CloseState,
    PeriodClose,
    PeriodCloseJob,
)
from controlplane.billing.months.periods import Period, close_of, oldest_open, open_because
from controlplane.core.audit.entries import OPERATOR, Actor, audit_record
from controlplane.core.models import uuid7
from controlplane.core.permissions import Action, organization_scope
from controlplane.core.queries import rows
from controlplane.tenants.access import require
from controlplane.tenants.models import Organization
from controlplane.tenants.selectors import organization_ids

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
# A month of so many requests is closed within the answer: it takes about a second.
CLOSE_AT_ONCE_REQUESTS = 20_000
# Longer than a window or a page takes; a killed worker's close stands still then.
CLAIM_FOR = timedelta(minutes=10)
TRIES_MAX = 5
DUE_PER_RUN_MAX = 20
AT_WORK = (CloseState.WAITING, CloseState.RUNNING)

Enqueue = Callable[[uuid.UUID, uuid.UUID], None]


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
        with organization_scope([organization]):
            page = rows(query, values)
        if page and reached is not None:
            reached(page[-1][-1])
        return page

    return read


def require_over(period: Period) -> None:
    """Raises ValidationError on `period` where it has not ended or is not sealed."""
    if (open_yet := open_because(period)) is not None:
        raise ValidationError({"period": f"{period} cannot be closed yet: {open_yet}."})


class DueClose(NamedTuple):
    """A close that someone should go on with."""

    organization: uuid.UUID
    job: uuid.UUID


class ClaimLost(Exception):
    """Another worker has taken it."""


def period_close_ask(
    *, actor: Actor, organization: uuid.UUID, period: Period, enqueue: Enqueue
) -> PeriodClose | PeriodCloseJob:
    """Close a month at once, or have a worker do it where it has many requests.

    Asked again it is the same close. Raises ValidationError on `period` where it cannot be closed
    yet; what comparing it finds is told by the job.
    """
    require(actor, Action.PERIOD_CLOSE, organization)
    if (closed := close_of(organization, period)) is not None:
        return closed
    require_over(period)
    first = oldest_open(organization)
    if period < first:
        raise ValidationError({"period": f"There are no entries before {first}."})
    if period > first:
        raise ValidationError({"period": f"Close {first} first: months are closed in order."})
    sums = hours(organizations=[organization], start=period.start, end=period.end, by=())
    if sum(one.requests for one in sums) <= CLOSE_AT_ONCE_REQUESTS:
        return period_close_now(actor=actor, organization=organization, period=period)
    with organization_scope([organization]):
        rows = PeriodCloseJob.objects.filter(organization=organization, period=period.name)
        made = PeriodCloseJob(
            organization=organization,
            period=period.name,
            asked_by=actor.actor_id,
            asked_label=actor.actor_label,
        )
        # Two who ask at once get one job: the constraint says whose.
        PeriodCloseJob.objects.bulk_create([made], ignore_conflicts=True)
        # The other's may have ended in the meantime.
        found = rows.filter(state__in=AT_WORK).first() or rows.latest("created_at")
        if found.id == made.id:
            audit_record(actor, "period.close_ask", subject=made, detail={"period": period.name})
        transaction.on_commit(lambda: enqueue(organization, found.id))
    return found


def period_close_run(due: DueClose) -> PeriodCloseJob | None:
    """Read the month through and close it; None where another worker has it, or it is over."""
    job = _claim(due)
    if job is None:
        return None

    def reached(moment: datetime | None) -> None:
        if not _save(job, reached_at=moment, claimed_until=Now() + CLAIM_FOR):
            raise ClaimLost

    try:
        period_close_now(
            actor=Asker(job.asked_by, job.asked_label),
            organization=job.organization,
            period=Period(job.period),
            reached=reached,
        )
    except ClaimLost:
        return None
    except ValidationError as error:
        told = " ".join(error.messages)[:ERROR_CHARS_MAX]
        _save(job, state=CloseState.FAILED, error=told, claim=None)
    else:
        _save(job, state=CloseState.DONE, claim=None)
    with organization_scope([due.organization]):
        return PeriodCloseJob.objects.get(id=job.id)


def period_closes_due() -> list[DueClose]:
    """Those of all organizations that wait, or whose worker has not been heard of."""
    with organization_scope(organization_ids(user=OPERATOR)):
        rows = PeriodCloseJob.objects.filter(_free(), state__in=AT_WORK).order_by("id")
        return [DueClose(*row) for row in rows.values_list("organization", "id")[:DUE_PER_RUN_MAX]]


def _claim(due: DueClose) -> PeriodCloseJob | None:
    with organization_scope([due.organization]):
        found = PeriodCloseJob.objects.filter(_free(), id=due.job, state__in=AT_WORK)
        given_up = f"Failed after {TRIES_MAX} interrupted attempts."
        if found.filter(tries__gte=TRIES_MAX).update(state=CloseState.FAILED, error=given_up):
            return None
        taken = found.update(
            claim=uuid.uuid4(),
            claimed_until=Now() + CLAIM_FOR,
            state=CloseState.RUNNING,
            reached_at=None,
            tries=F("tries") + 1,
        )
        return PeriodCloseJob.objects.get(id=due.job) if taken else None


def _free() -> Q:
    return Q(claimed_until__isnull=True) | Q(claimed_until__lt=Now())


def _save(job: PeriodCloseJob, **values: object) -> bool:
    with organization_scope([job.organization]):
        # One that was given up in the meantime is over, whoever still works on it.
        rows = PeriodCloseJob.objects.filter(id=job.id, claim=job.claim, state=CloseState.RUNNING)
        return bool(rows.update(**values))
