"""Recorded requests as pages read them: a page of a filtered list, its volume, one request.

All reads are cut by request id, which is time, so that only the days asked for are touched. Rows
are as their tenant sees them; `nodes` names nodes, too, for those who may view the fleet.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from django.db.models import Count, DateTimeField, DurationField, F, Func, Q, QuerySet, Value

from controlplane.kernel.receipt import Receipt, read_receipt
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.tenant_view import hide_nodes

PAGE_ROWS = 50
# What one reading of a whole list takes at once, and what all of them together may.
LIST_PAGE_ROWS = 1_000
LIST_ROWS_MAX = 20_000
VOLUME_MS_MAX = 1_000
FAILED = Q(status__gte=FAILED_FROM) & ~Q(status=CLIENT_LEFT)
SERVER_FAILED_FROM = 500
# Stored names of the answers' endings; a request that never got so far has none.
FINISHES = ("stop", "length", "tool_calls", "content_filter")
Ranked = Literal["total_us", "ttft_us", "cost_nano"]


@dataclass(frozen=True)
class RequestFilter:
    """Which requests; None and the empty string leave a column open. [start, end).

    The least and the most of a figure are both in it.
    """

    organization: uuid.UUID
    start: datetime
    end: datetime
    model: str = ""
    project: uuid.UUID | None = None
    key: uuid.UUID | None = None
    status: str = ""
    finish: str = ""
    stream: bool | None = None
    pool: str = ""
    region: str = ""
    route: str = ""
    error_code: str = ""
    total_us_min: int = 0
    total_us_max: int | None = None
    ttft_us_min: int = 0
    ttft_us_max: int | None = None
    cost_nano_min: int = 0


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
        found = request_rows(wanted).defer("spans", "receipt")
        if after is not None:
            found = found.filter(request__gt=after).order_by("request")
            rows = _seen(found[: PAGE_ROWS + 1])
            kept = rows[:PAGE_ROWS][::-1]
            return RequestPage(kept, newer=len(rows) > PAGE_ROWS, older=True)
        if before is not None:
            found = found.filter(request__lt=before)
        rows = _seen(found.order_by("-request")[: PAGE_ROWS + 1])
        return RequestPage(rows[:PAGE_ROWS], newer=before is not None, older=len(rows) > PAGE_ROWS)


def request_top(wanted: RequestFilter, measure: Ranked) -> RequestPage:
    """The first rows by total time, time to the first token or cost; raises TooMuchToRead."""
    with bounded_read([wanted.organization]):
        rows = request_rows(wanted).filter(**{f"{measure}__gt": 0}).defer("spans", "receipt")
        found = _seen(rows.order_by(f"-{measure}", "-request")[:PAGE_ROWS])
        return RequestPage(found, newer=False, older=False)


def request_list(wanted: RequestFilter, *, nodes: bool = False) -> tuple[list[RequestRecord], bool]:
    """Every row, newest first, and whether there are more than `LIST_ROWS_MAX`, which is the most.

    Page by page, each in a short transaction; raises TooMuchToRead.
    """
    rows: list[RequestRecord] = []
    while len(rows) <= LIST_ROWS_MAX:
        with bounded_read([wanted.organization]):
            found = request_rows(wanted).defer("spans", "receipt").order_by("-request")
            if rows:
                found = found.filter(request__lt=rows[-1].request)
            page = _seen(found[:LIST_PAGE_ROWS], nodes)
        rows += page
        if len(page) < LIST_PAGE_ROWS:
            return rows, False
    return rows[:LIST_ROWS_MAX], True


def request_receipts(
    organization: uuid.UUID, requests: Sequence[uuid.UUID]
) -> dict[uuid.UUID, Receipt]:
    """Receipts of requests, which lists leave out; some at a time, each in a short transaction."""
    found: dict[uuid.UUID, Receipt] = {}
    for first in range(0, len(requests), LIST_PAGE_ROWS):
        some = requests[first : first + LIST_PAGE_ROWS]
        with bounded_read([organization]):
            rows = RequestRecord.objects.filter(request__in=some)
            kept = rows.values_list("request", "receipt")
            found |= {one: read_receipt(bytes(data)) for one, data in kept}
    return found


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
            request_rows(wanted)
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


def request_get(
    organizations: Iterable[uuid.UUID], request_id: uuid.UUID, *, nodes: bool = False
) -> RequestRecord:
    """One request of these organizations; raises DoesNotExist for all others."""
    with bounded_read(organizations):
        record = RequestRecord.objects.get(request=request_id)
    return record if nodes else hide_nodes(record)


def request_neighbours(
    wanted: RequestFilter, request_id: uuid.UUID
) -> tuple[uuid.UUID | None, uuid.UUID | None]:
    """Ids of the next newer and the next older request within the filter."""
    with bounded_read([wanted.organization]):
        ids = request_rows(wanted).values_list("request", flat=True)
        newer = ids.filter(request__gt=request_id).order_by("request").first()
        older = ids.filter(request__lt=request_id).order_by("-request").first()
        return newer, older


def _seen(rows: QuerySet[RequestRecord], nodes: bool = False) -> list[RequestRecord]:
    return list(rows) if nodes else [hide_nodes(row) for row in rows]


def request_rows(wanted: RequestFilter) -> QuerySet[RequestRecord]:
    """All that match, for reads inside the organization's scope."""
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
    for name in ("finish", "pool", "region", "route", "error_code"):
        if value := getattr(wanted, name):
            rows = rows.filter(**{name: value})
    if wanted.stream is not None:
        rows = rows.filter(stream=wanted.stream)
    for name in ("total_us", "ttft_us", "cost_nano"):
        if least := getattr(wanted, f"{name}_min"):
            rows = rows.filter(**{f"{name}__gte": least})
    if wanted.total_us_max is not None:
        rows = rows.filter(total_us__lte=wanted.total_us_max)
    if wanted.ttft_us_max is not None:
        # Where there was no first token, its time is negative.
        rows = rows.filter(ttft_us__range=(0, wanted.ttft_us_max))
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
