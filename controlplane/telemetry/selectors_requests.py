"""Recorded requests as pages read them: a page of a filtered list, its volume, what it is made of
by outcome, ending, rule, pool and node, and one request.

All reads are cut by request id, which is time, so that only the days asked for are touched. Rows
are as their tenant sees them: the pool by name, its nodes only by numbers, since names of nodes and
their loads, which other tenants' traffic makes, are the operator's alone. Of the nodes that were
weighed a tenant learns how many there were, how much of its own prompt each had cached, and which
was chosen. `nodes` names nodes, too, for those who may view the fleet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
from django.db.models import Count, DateTimeField, DurationField, F, Func, Q, QuerySet, Sum, Value

from controlplane.kernel.receipt import (
    BELIEVED,
    NodeAttempt,
    Receipt,
    WeighedNode,
    read_receipt,
    write_receipt,
)
from controlplane.kernel.statuses import CLIENT_LEFT, FAILED_FROM
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import TooMuchToRead, bounded_read

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
TALLY_MS_MAX = 1_000
GROUPS_MAX = 5_000
DIMENSIONS = ("status", "error_code", "finish", "route", "pool", "region", "model")


@dataclass(frozen=True)
class RequestFilter:
    """Which requests; None and the empty string leave a column open. [start, end).

    The least and the most of a figure are both in it.
    """

    organization: UUID
    start: datetime
    end: datetime
    model: str = ""
    project: UUID | None = None
    key: UUID | None = None
    status: str = ""
    finish: str = ""
    stream: bool | None = None
    pool: str = ""
    region: str = ""
    route: str = ""
    error_code: str = ""
    end_user: str = ""
    total_us_min: int = 0
    total_us_max: int | None = None
    ttft_us_min: int = 0
    ttft_us_max: int | None = None
    cost_nano_min: int = 0
    rating: int = 0


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


def id_floor(moment: datetime) -> UUID:
    """The least request id of a moment; there are none from before 1970."""
    return UUID(int=max(0, int(moment.timestamp() * 1_000)) << 80)


def request_page(
    wanted: RequestFilter, *, before: UUID | None = None, after: UUID | None = None
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


def request_receipts(organization: UUID, requests: Sequence[UUID]) -> dict[UUID, Receipt]:
    """Receipts of requests, which lists leave out; some at a time, each in a short transaction."""
    found: dict[UUID, Receipt] = {}
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
    organizations: Iterable[UUID], request_id: UUID, *, nodes: bool = False
) -> RequestRecord:
    """One request of these organizations; raises DoesNotExist for all others."""
    with bounded_read(organizations):
        record = RequestRecord.objects.get(request=request_id)
    return record if nodes else hide_nodes(record)


def request_neighbours(wanted: RequestFilter, request_id: UUID) -> tuple[UUID | None, UUID | None]:
    """Ids of the next newer and the next older request within the filter."""
    with bounded_read([wanted.organization]):
        ids = request_rows(wanted).values_list("request", flat=True)
        newer = ids.filter(request__gt=request_id).order_by("request").first()
        older = ids.filter(request__lt=request_id).order_by("-request").first()
        return newer, older


def _seen(rows: QuerySet[RequestRecord], nodes: bool = False) -> list[RequestRecord]:
    return list(rows) if nodes else [hide_nodes(row) for row in rows]


def request_rows(
    wanted: RequestFilter, organizations: Iterable[UUID] = ()
) -> QuerySet[RequestRecord]:
    """All that match, for reads inside the scope of the organization, or of those given."""
    rows = RequestRecord.objects.filter(
        organization__in=list(organizations) or [wanted.organization],
        request__gte=id_floor(wanted.start),
        request__lt=id_floor(wanted.end),
    )
    if wanted.model:
        rows = rows.filter(model=wanted.model)
    if wanted.project is not None:
        rows = rows.filter(project=wanted.project)
    if wanted.key is not None:
        rows = rows.filter(key=wanted.key)
    for name in ("finish", "pool", "region", "route", "error_code", "end_user", "rating"):
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


SAMPLE_ROWS_MAX = 500


class Sampled(NamedTuple):
    """One request that read a prompt."""

    prompt_tokens: int
    cached_tokens: int
    spans: bytes
    receipt: bytes


def request_sample(wanted: RequestFilter) -> list[Sampled]:
    """The newest requests that match and read a prompt; raises TooMuchToRead."""
    with bounded_read([wanted.organization]):
        rows = request_rows(wanted).filter(prompt_tokens__gt=0).order_by("-request")
        return [
            Sampled(prompt, cached, bytes(spans), bytes(receipt))
            for prompt, cached, spans, receipt in rows.values_list(*Sampled._fields)[
                :SAMPLE_ROWS_MAX
            ]
        ]


@dataclass(frozen=True)
class Tally:
    """Requests with the same value of some dimensions, and what they cost together."""

    value: tuple[Any, ...]
    requests: int
    nano: int


@dataclass(frozen=True)
class TallyGroup:
    """Requests that are alike in every dimension; `node` is empty where nodes are not told."""

    status: int
    error_code: str
    finish: str
    route: str
    pool: str
    region: str
    model: str
    requests: int
    nano: int
    node: str = ""


def request_groups(wanted: RequestFilter, *, nodes: bool = False) -> list[TallyGroup]:
    """The list in groups; raises TooMuchToRead rather than holding a page up.

    By node, too, with `nodes`: for those who may view the fleet.
    """
    dimensions = (*DIMENSIONS, "node") if nodes else DIMENSIONS
    with bounded_read([wanted.organization], TALLY_MS_MAX):
        rows = (
            request_rows(wanted)
            .order_by()
            .values(*dimensions)
            .annotate(requests=Count("request"), nano=Sum("cost_nano"))
        )
        found = list(rows[: GROUPS_MAX + 1])
    if len(found) > GROUPS_MAX:
        raise TooMuchToRead
    return [TallyGroup(**{**row, "nano": int(row["nano"])}) for row in found]


def tally(groups: Iterable[TallyGroup], *names: str) -> list[Tally]:
    """Sums by some dimensions, the most requests first."""
    value = attrgetter(*names)
    sums: dict[tuple[Any, ...], list[int]] = {}
    for group in groups:
        key = value(group) if len(names) > 1 else (value(group),)
        pair = sums.setdefault(key, [0, 0])
        pair[0] += group.requests
        pair[1] += group.nano
    found = [Tally(key, requests, nano) for key, (requests, nano) in sums.items()]
    return sorted(found, key=lambda one: (-one.requests, str(one.value)))


def hide_nodes(record: RequestRecord) -> RequestRecord:
    """The same row, unsaved, without its node; lists leave the receipt out, and so does this."""
    record.node = ""
    if "receipt" not in record.get_deferred_fields():
        receipt = tenant_receipt(read_receipt(bytes(record.receipt)))
        record.receipt = write_receipt(receipt)
    return record


def tenant_receipt(receipt: Receipt) -> Receipt:
    """A receipt with numbers for nodes, cheapest first."""
    weighed, tried = receipt.candidates, receipt.attempts
    chosen = [receipt.node] if receipt.node else []
    names = [*(each.node for each in weighed), *chosen, *(each.node for each in tried)]
    labels = {name: f"Node {number}" for number, name in enumerate(dict.fromkeys(names), 1)}
    return msgspec.structs.replace(
        receipt,
        node=labels.get(receipt.node, ""),
        why=_why(receipt, labels) if receipt.node else "",
        candidates=tuple(
            WeighedNode(
                node=labels[each.node], cached_tokens=each.cached_tokens, prefill_ms=each.prefill_ms
            )
            for each in weighed
        ),
        attempts=tuple(NodeAttempt(labels[each.node]) for each in tried),
    )


def _why(receipt: Receipt, labels: dict[str, str]) -> str:
    """The gateway's sentence without costs: they tell what others had under way there."""
    weighed = receipt.candidates
    chosen = next((each for each in weighed if each.node == receipt.node), None)
    if chosen is None or len(weighed) == 1:
        return "One node had room."
    name = labels[receipt.node]
    if receipt.index == "ring":
        return f"No node's cache is known, so the beginning of the prompt chose {name}."
    most = max(weighed, key=lambda each: each.cached_tokens)
    if most.cached_tokens == 0:
        return f"No node had this prompt cached, and {name} had the lowest expected cost."
    had = f"{name} had {chosen.cached_tokens:,} prompt tokens cached"
    had += BELIEVED.get(receipt.index, "")
    if chosen.cached_tokens == most.cached_tokens:
        return f"{had} and the lowest expected cost."
    return f"{had}; {labels[most.node]} had {most.cached_tokens:,}, but was too busy."
