"""Money as pages ask for it: scoped to organizations and bounded in time. Changes nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime

from django.db.models import Sum

from controlplane.billing.models import (
    POSTING_KINDS,
    Budget,
    JournalEntry,
    Transfer,
    TransferKind,
)
from controlplane.billing.selectors import budgets_of, transfers_of
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors_requests import id_floor

SPEND_MS_MAX = 1_000


def request_lines(*, organizations: Iterable[uuid.UUID], request: uuid.UUID) -> list[Transfer]:
    """Ledger lines of one request of these organizations, in the order of their slots."""
    with bounded_read(organizations):
        return transfers_of(request)


def request_reversals(*, organization: uuid.UUID, request: uuid.UUID) -> list[JournalEntry]:
    """What was given back of a request's charge, oldest first."""
    with bounded_read([organization]):
        rows = JournalEntry.objects.filter(organization=organization, reverses=request)
        return list(rows.order_by("booked_at", "id"))


def request_charge(*, organization: uuid.UUID, request: uuid.UUID) -> int | None:
    """Nano-USD posted for a request; None while nothing has resolved it."""
    lines = request_lines(organizations=[organization], request=request)
    resolved = [line for line in lines if line.kind != TransferKind.HOLD]
    if not resolved:
        return None
    return sum(line.amount for line in resolved if line.kind in POSTING_KINDS)


def spend_nano(
    *,
    organization: uuid.UUID,
    start: datetime,
    end: datetime,
    model: str = "",
    project: uuid.UUID | None = None,
) -> int:
    """Posted for requests that began in [start, end); raises TooMuchToRead when that takes long."""
    narrowed: dict[str, object] = {"model": model} if model else {}
    if project is not None:
        narrowed["project"] = project
    with bounded_read([organization], SPEND_MS_MAX):
        rows = Transfer.objects.filter(
            organization=organization,
            request__gte=id_floor(start),
            request__lt=id_floor(end),
            kind__in=POSTING_KINDS,
            **narrowed,
        )
        return int(rows.aggregate(total=Sum("amount"))["total"] or 0)


def budget_map(
    *, organization: uuid.UUID, subjects: Iterable[uuid.UUID]
) -> dict[uuid.UUID, Budget]:
    """Budgets of an organization by the id of what they limit."""
    with bounded_read([organization]):
        return budgets_of(subjects)
