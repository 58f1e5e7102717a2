"""Recorded requests as pages read them: a page of a filtered list, its volume, one request.

All reads are cut by request id, which is time, so that only the days asked for are touched.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, DateTimeField, DurationField, F, Func, Q, QuerySet, Value

from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import bounded_read

PAGE_ROWS = 50
VOLUME_MS_MAX = 1_000
FAILED = Q(status__gte=FAILED_FROM) & ~Q(status=CLIENT_LEFT)
SERVER_FAILED_FROM = 500
# Stored names of the answers' endings; a request that never got so far has none.
FINISHES = ("stop", "length", "content_filter")


@dataclass(frozen=True)
class RequestFilter:
    """Which requests; None and the empty string leave a column open. [start, end)."""

    organization: uuid.UUID
    start: datetime
    end: datetime
    model: str = ""
    project: uuid.UUID | None = None
    key: uuid.UUID | None = None
    status: str = ""
    finish: str = ""
    stream: bool | None = None
    total_us_min: int = 0


@dataclass(frozen=True)
class RequestPage:
    """Rows, newest first, and whether there are more on either side."""

    rows: list[RequestRecord]
    newer: bool
    older: bool


@dataclass(frozen=True)
class Volume:
    """Requests that began within one step from `at`; a client that left has not `failed`."""

    at: datetime
    requests: int
    failed: int
    gone: int


def id_floor(moment: datetime) -> uuid.UUID:
    """The least request id of a moment; there are none from before 1970."""
    return uuid.UUID(int=max(0, int(moment.timestamp() * 1_000)) << 80)


def request_page(
    wanted: RequestFilter, *, before: uuid.UUID | None = None, after: uuid.UUID | None = None
) -> RequestPage:
    """A page by key: the rows next below `before`, or next above `after`."""
    with bounded_read([wanted.organization]):
        found = _filtered(wanted).defer("spans", "receipt")
        if after is not None:
            rows = list(found.filter(request__gt=after).order_by("request")[: PAGE_ROWS + 1])
            kept = rows[:PAGE_ROWS][::-1]
            return RequestPage(kept, newer=len(rows) > PAGE_ROWS, older=True)
        if before is not None:
            found = found.filter(request__lt=before)
        rows = list(found.order_by("-request")[: PAGE_ROWS + 1])
        return RequestPage(rows[:PAGE_ROWS], newer=before is not None, older=len(rows) > PAGE_ROWS)


def request_volume(wanted: RequestFilter, step_s: int) -> list[Volume]:
    """Requests by step; raises TooMuchToRead rather than holding a page up."""
    bins = Func(
        Value(timedelta(seconds=step_s), output_field=DurationField()),
        F("started_at"),
        Value(wanted.start, output_field=DateTimeField()),
        function="date_bin",
        output_field=DateTimeField(),
    )
    with bounded_read([wanted.organization], VOLUME_MS_MAX):
        rows = (
            _filtered(wanted)
            .order_by()
            .annotate(at=bins)
            .values("at")
            .annotate(
                requests=Count("request"),
                failed=Count("request", filter=FAILED),
                gone=Count("request", filter=Q(status=CLIENT_LEFT)),
            )
        )
        return [Volume(**row) for row in rows.order_by("at")]


def request_get(organizations: Iterable[uuid.UUID], request_id: uuid.UUID) -> RequestRecord:
    """One request of these organizations; raises DoesNotExist for all others."""
    with bounded_read(organizations):
        return RequestRecord.objects.get(request=request_id)


def request_neighbours(
    wanted: RequestFilter, request_id: uuid.UUID
) -> tuple[uuid.UUID | None, uuid.UUID | None]:
    """Ids of the next newer and the next older request within the filter."""
    with bounded_read([wanted.organization]):
        ids = _filtered(wanted).values_list("request", flat=True)
        newer = ids.filter(request__gt=request_id).order_by("request").first()
        older = ids.filter(request__lt=request_id).order_by("-request").first()
        return newer, older


def _filtered(wanted: RequestFilter) -> QuerySet[RequestRecord]:
    rows = RequestRecord.objects.filter(
        organization=wanted.organization,
        request__gte=id_floor(wanted.start),
        request__lt=id_floor(wanted.end),
    )
    if wanted.model:
        rows = rows.filter(model=wanted.model)
    if wanted.project is not None:
        rows = rows.filter(project=wanted.project)
    if wanted.key is not None:
        rows = rows.filter(key=wanted.key)
    if wanted.finish:
        rows = rows.filter(finish=wanted.finish)
    if wanted.stream is not None:
        rows = rows.filter(stream=wanted.stream)
    if wanted.total_us_min:
        rows = rows.filter(total_us__gte=wanted.total_us_min)
    return _by_status(rows, wanted.status)


def _by_status(rows: QuerySet[RequestRecord], status: str) -> QuerySet[RequestRecord]:
    if status == "ok":
        return rows.filter(status__lt=FAILED_FROM)
    if status == "failed":
        return rows.filter(FAILED)
    if status == "server":
        return rows.filter(status__gte=SERVER_FAILED_FROM)
    if status.isdecimal():
        return rows.filter(status=int(status))
    return rows
