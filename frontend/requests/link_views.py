"""What leads into the list of requests and out of it: its CSV, and a percentile's own request."""

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from controlplane.billing.cells import NANO_PLACES, Cell, Column, Value, decimal_text, instant_text
from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from controlplane.kernel.limits import ReachedLimit
from controlplane.kernel.receipt import NONE
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.selectors import SeriesQuery, exemplar
from controlplane.telemetry.selectors_requests import LIST_ROWS_MAX, request_list, request_receipts
from controlplane.tenants.selectors import key_names
from frontend.requests.views import key_label
from frontend.shared.access import Viewer, page
from frontend.shared.asked import in_time
from frontend.shared.filters import filters_from, range_from, request_filter
from frontend.shared.formats import EXEMPLARS
from frontend.shared.panels import columns_csv

VALUE_DIGITS_MAX = 15
COLUMNS = (
    Column("request", Cell.TEXT, "Its id."),
    Column("started_at", Cell.TIME, "Arrival at the gateway, UTC."),
    Column("status", Cell.NUMBER, "HTTP status; 499 if the client disconnected."),
    Column("error_code", Cell.TEXT, "Error code."),
    Column("model", Cell.FREE, "Model that served the request."),
    Column("route", Cell.FREE, "Rule and version; direct where none matched."),
    Column("pool", Cell.FREE, "Pool."),
    Column("region", Cell.FREE, "Region."),
    Column("node", Cell.FREE, "Node; for staff alone."),
    Column("project", Cell.TEXT, "Project's id."),
    Column("key", Cell.FREE, "Label of the key."),
    Column("operation", Cell.TEXT, "chat, completion or embedding."),
    Column("stream", Cell.NUMBER, "1 where streamed."),
    Column("finish", Cell.TEXT, "How the answer ended."),
    Column("total_us", Cell.NUMBER, "Whole time, microseconds."),
    Column("ttft_us", Cell.NUMBER, "Time to the first token, microseconds."),
    Column("prompt_tokens", Cell.NUMBER, "Tokens in."),
    Column("cached_tokens", Cell.NUMBER, "Of them from the cache."),
    Column("output_tokens", Cell.NUMBER, "Tokens out."),
    Column("cost_usd", Cell.NUMBER, "Charged."),
    Column("cost_nano_usd", Cell.NUMBER, "The same in nano-USD."),
    Column(
        "limit_scope",
        Cell.TEXT,
        "Scope of the limit that refused it: key, project, organization, user or model.",
    ),
    Column("limit_kind", Cell.TEXT, "Which: requests, tokens, requests-day, concurrency, budget."),
    Column("limit", Cell.NUMBER, "Its figure; a budget's is not recorded."),
    Column("end_user", Cell.FREE, "End user that it named."),
    Column("reasoning_tokens", Cell.NUMBER, "Tokens out that were thoughts."),
)


@page("requests.csv", Action.REQUEST_VIEW, "GET")
def requests_csv(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every request that the list's filters let through, newest first, up to a bound.

    The file's name says where the bound was met.
    """
    within, *complaints = range_from(request.GET, timezone.now())
    filters, unread = filters_from(request.GET)
    if complaint := " ".join(filter(None, (*complaints, unread))):
        return _refused(complaint)
    try:
        rows, more = request_list(
            request_filter(filters, viewer.organization.id, within), nodes=viewer.sees_fleet
        )
        receipts = request_receipts(viewer.organization.id, [row.request for row in rows])
    except TooMuchToRead:
        return _refused("The query timed out. Choose a shorter range.")
    labels = key_names(user=viewer.user, organization_id=viewer.organization.id)
    cells = (
        [
            *_cells(row, key_label(labels, row.key)),
            *_limit_cells(receipts.get(row.request, NONE).limit),
            row.end_user,
            receipts.get(row.request, NONE).reasoning_tokens,
        ]
        for row in rows
    )
    name = f"sluice-requests{f'-newest-{LIST_ROWS_MAX}' if more else ''}"
    if viewer.sees_fleet:
        return columns_csv(COLUMNS, cells, name)
    kept = [place for place, column in enumerate(COLUMNS) if column.name != "node"]
    cells = ([row[place] for place in kept] for row in cells)
    return columns_csv([COLUMNS[place] for place in kept], cells, name)


@page("requests/exemplar", Action.REQUEST_VIEW, "GET")
def request_exemplar(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """On to a request of one's own that took about `value` microseconds of `measure`.

    Where none is known, to the list from there on, slowest first, with a word of why.
    """
    within, *complaints = range_from(request.GET, timezone.now())
    filters, unread = filters_from(request.GET)
    measure, value = request.GET.get("measure", ""), _microseconds(request.GET.get("value", ""))
    if measure not in EXEMPLARS or value is None or any((*complaints, unread)):
        raise Http404
    query = SeriesQuery(
        organization=viewer.organization.id,
        start=within.start,
        end=within.end,
        step_s=within.step_s,
        model=filters.model,
        project=filters.project_id,
    )
    kept = filters.query(within)
    if (found := in_time(lambda: exemplar(query, measure, value))) is not None:
        return redirect(f"{reverse('request', args=[found])}?{kept}")
    messages.info(request, "No recorded request of yours took this long; showing the closest.")
    return redirect(f"{reverse('requests')}?{kept}&sort={'first' if measure == 'ttft' else 'slow'}")


def _microseconds(text: str) -> int | None:
    short = len(text) <= VALUE_DIGITS_MAX and text.isascii() and text.isdecimal()
    return int(text) if short else None


def _refused(told: str) -> HttpResponse:
    return HttpResponse(told, status=400, content_type="text/plain; charset=utf-8")


def _cells(row: RequestRecord, label: str) -> list[Value]:
    return [
        public_id("req", row.request),
        instant_text(row.started_at),
        row.status,
        row.error_code,
        *(row.model, row.route, row.pool, row.region, row.node),
        public_id("proj", row.project),
        label,
        row.operation,
        int(row.stream),
        row.finish,
        row.total_us,
        row.ttft_us if row.ttft_us >= 0 else None,
        *(row.prompt_tokens, row.cached_tokens, row.output_tokens),
        decimal_text(row.cost_nano, NANO_PLACES),
        row.cost_nano,
    ]


def _limit_cells(limit: ReachedLimit | None) -> list[Value]:
    return ["", "", None] if limit is None else [limit.scope, limit.kind, limit.limit]
