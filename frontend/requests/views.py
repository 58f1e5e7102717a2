"""Requests: the filtered list with its volume, and one request with its waterfall."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import patch_vary_headers

from controlplane.billing.ledger.models import POSTING_KINDS, JournalEntry, Transfer
from controlplane.billing.ledger.selectors import request_lines, request_reversals
from controlplane.catalog.models import PriceVersion
from controlplane.catalog.selectors import model_list, pool_list, price_find
from controlplane.contents.services import may_read
from controlplane.core.permissions import Action
from controlplane.fleet.selectors import node_hardware
from controlplane.kernel.ids import public_id
from controlplane.kernel.receipt import NONE, NetworkLine, Receipt, read_receipt
from controlplane.kernel.spans import unpack_spans
from controlplane.kernel.statuses import CLIENT_LEFT
from controlplane.telemetry import selectors_requests
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.selectors_requests import request_groups
from controlplane.tenants.models import Project
from controlplane.tenants.selectors import key_names, organization_ids, project_list
from frontend.requests.moment import read_moment
from frontend.requests.receipt import account_names, ledger_lines, receipt_rows
from frontend.requests.refused import LIMITED, Refused, budget_words, find_refused
from frontend.requests.shares import Share, VolumeBars, make_shares, volume_bars
from frontend.requests.waterfall import beside, make_waterfall
from frontend.requests.why import Evidence, read_miss, reasons
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.filters import (
    RANK_HEADS,
    RANKED,
    RATINGS,
    RELATIVE,
    SORTS,
    STATUSES,
    STREAMS,
    Filters,
    TimeRange,
    choices,
    filters_from,
    place_from,
    range_from,
    request_filter,
)

CLIENT_FAILED_FROM = 400
SERVER_FAILED_FROM = 500
PROXY = "proxy"
OUTSIDE = "smoothed by the kernel; not part of any stage or the total"
PROXIED = "the connection to a trusted proxy; the client's own connection is unknown"
UNKNOWN = "not reported by the server or its kernel"


def status_of(record: RequestRecord) -> tuple[str, str]:
    """Tone (ok, warn, bad, off) and text; status codes below 400 need no words."""
    if record.status >= SERVER_FAILED_FROM:
        return "bad", f"{record.status} {record.error_code}".strip()
    if record.status == CLIENT_LEFT:
        return "off", "499 client closed request"
    if record.status >= CLIENT_FAILED_FROM:
        return "warn", f"{record.status} {record.error_code}".strip()
    return "ok", str(record.status)


@dataclass(frozen=True)
class ClientLine:
    """`rtt_us` is None where nothing was told; it is never zero."""

    rtt_us: int | None
    title: str
    whose: str
    hint: str


def read_line(line: NetworkLine | None) -> ClientLine:
    """From a request's receipt; those of refusals and of older requests may have none."""
    if line is None or line.rtt_us <= 0:
        return ClientLine(None, "Client network", "the client", UNKNOWN)
    if line.of == PROXY:
        return ClientLine(line.rtt_us, "Proxy network (RTT)", "the proxy", PROXIED)
    return ClientLine(line.rtt_us, "Client network", "the client", OUTSIDE)


@dataclass(frozen=True)
class RequestRow:
    record: RequestRecord
    key_label: str
    refused: Refused | None = None

    @property
    def status(self) -> tuple[str, str]:
        return status_of(self.record)

    @property
    def ttft_us(self) -> int | None:
        """Time to the first token, where there was one."""
        return self.record.ttft_us if self.record.ttft_us >= 0 else None


def payer_names(viewer: Viewer, record: RequestRecord) -> dict[str, str]:
    """Organization and project of a request by name, in the words of `ledger_lines`."""
    organizations = {one.id: one.name for one in viewer.organizations}
    projects = {one.id: one.name for one in project_list(user=viewer.user)}
    return {
        "organization": organizations.get(record.organization, ""),
        "project": projects.get(record.project, ""),
    }


def key_label(labels: dict[uuid.UUID, str], key: uuid.UUID) -> str:
    # A Playground token is made of its user, whose id therefore stands where a key's would.
    return labels.get(key, "Playground" if labels else public_id("key", key)[:12])


def _read(
    wanted: selectors_requests.RequestFilter, place: dict[str, uuid.UUID], sort: str
) -> selectors_requests.RequestPage | None:
    """A page of the list; None where the range holds too much to read in time."""
    if sort:
        return in_time(lambda: selectors_requests.request_top(wanted, RANKED[sort]))
    return in_time(lambda: selectors_requests.request_page(wanted, **place))


def limit_receipts(
    organization: uuid.UUID, rows: Iterable[RequestRecord]
) -> dict[uuid.UUID, Receipt]:
    """Receipts of those rows that a limit may have refused."""
    return selectors_requests.request_receipts(
        organization, [one.request for one in rows if one.status == LIMITED]
    )


def _rows(
    viewer: Viewer, labels: dict[uuid.UUID, str], found: selectors_requests.RequestPage
) -> list[RequestRow]:
    # The list does without the limits' words where they are too much to read.
    receipts = in_time(lambda: limit_receipts(viewer.organization.id, found.rows)) or {}
    return [
        RequestRow(
            row,
            key_label(labels, row.key),
            find_refused(viewer, row, receipts.get(row.request, NONE)),
        )
        for row in found.rows
    ]


def _volume(wanted: selectors_requests.RequestFilter, within: TimeRange) -> VolumeBars | None:
    read = selectors_requests.request_volume
    return in_time(lambda: volume_bars(read(wanted, within.step_s), within))


def _shares(
    wanted: selectors_requests.RequestFilter, filters: Filters, within: TimeRange, *, nodes: bool
) -> list[Share]:
    shares = in_time(lambda: make_shares(request_groups(wanted, nodes=nodes), filters, within))
    return shares or []


@page("requests", Action.REQUEST_VIEW, "GET", name="requests")
def request_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The list; htmx asks for its results only."""
    within, *complaints = range_from(request.GET, timezone.now())
    filters, unread = filters_from(request.GET)
    place, lost = place_from(request.GET)
    wanted = request_filter(filters, viewer.organization.id, within)
    found = _read(wanted, place, filters.sort)
    shares = (
        _shares(wanted, filters, within, nodes=viewer.sees_fleet) if found and found.rows else []
    )
    labels = key_names(user=viewer.user, organization_id=viewer.organization.id)
    keys = choices([(public_id("key", one), label) for one, label in labels.items()], filters.key)
    projects = [(public_id("proj", one.id), one.name) for one in viewer.projects()]
    context = {
        "viewer": viewer,
        "here": "requests",
        "within": within,
        "ranges": RELATIVE,
        "complaint": " ".join(filter(None, (*complaints, unread, lost))),
        "filters": filters,
        "filter_query": filters.query(within),
        "found": found,
        "rows": _rows(viewer, labels, found) if found else [],
        "volume": _volume(wanted, within) if found and found.rows else None,
        "shares": shares,
        "list_rows_max": selectors_requests.LIST_ROWS_MAX,
        "keys": keys if labels else [],
        "models": choices(
            [(one.name, one.name) for one in model_list(removed=True)], filters.model
        ),
        "projects": choices(projects, filters.project),
        "statuses": STATUSES,
        "streams": STREAMS,
        "ratings": RATINGS,
        "finishes": selectors_requests.FINISHES,
        "sorts": SORTS,
        "ranks": {
            head: (
                f"?{replace(filters, sort=sort).query(within)}",
                "descending" * (sort == filters.sort),
            )
            for head, sort in RANK_HEADS.items()
        },
        "pools": choices([(one.name, one.name) for one in pool_list()], filters.pool),
    }
    # Going back asks for the whole page again, through htmx or from the browser's own cache.
    asked = request.headers
    part = "HX-Request" in asked and "HX-History-Restore-Request" not in asked
    name = "requests/parts/results.html" if part else "requests/list.html"
    answer = render(request, name, context)
    patch_vary_headers(answer, ["HX-Request", "HX-History-Restore-Request"])
    return answer


def _price(transfers: Iterable[Transfer]) -> PriceVersion | None:
    """The version that the charge names; None where nothing was charged."""
    charge = next((line for line in transfers if line.kind in POSTING_KINDS), None)
    if charge is None:
        return None
    return price_find(
        model=charge.model, version=charge.price_version, organization_id=charge.organization
    )


def _elsewhere(viewer: Viewer, record: RequestRecord) -> str:
    """The organization of a request that is not the one shown; empty where it is."""
    if viewer.chosen is not None and viewer.chosen.id == record.organization:
        return ""
    return next((one.name for one in viewer.organizations if one.id == record.organization), "")


def _read_of(viewer: Viewer, record: RequestRecord) -> Project | None:
    """The project shown, where the viewer may read what was said."""
    project = next((one for one in viewer.projects() if one.id == record.project), None)
    return project if project and may_read(actor=viewer.user, project=project) else None


def _reversals(viewer: Viewer, record: RequestRecord) -> list[JournalEntry]:
    """What was given back; who did it and why is for those who may read the ledger."""
    found = request_reversals(organization=record.organization, request=record.request)
    if record.organization not in organization_ids(user=viewer.user, action=Action.LEDGER_VIEW):
        for entry in found:
            entry.actor_label = entry.reason = ""
    return found


@page("requests/<req:request_id>", Action.REQUEST_VIEW, "GET", name="request")
def request_detail(request: HttpRequest, viewer: Viewer, request_id: uuid.UUID) -> HttpResponse:
    """Everything kept of one request of any organization the user may look into."""
    seen = organization_ids(user=viewer.user, action=Action.REQUEST_VIEW)
    record = selectors_requests.request_get(seen, request_id, nodes=viewer.sees_fleet)
    within, _ = range_from(request.GET, timezone.now())
    filters, _ = filters_from(request.GET)
    newer, older = selectors_requests.request_neighbours(
        request_filter(filters, record.organization, within), request_id
    )
    labels = key_names(user=viewer.user, organization_id=record.organization)
    transfers = request_lines(organizations=seen, request=request_id)
    reversals = _reversals(viewer, record)
    names = payer_names(viewer, record)
    lines = ledger_lines(transfers, **names)
    label = key_label(labels, record.key)
    receipt = read_receipt(bytes(record.receipt))
    line = read_line(receipt.line)
    times = unpack_spans(bytes(record.spans))
    waterfall = make_waterfall(times, record.total_us, record.ttft_us, line.rtt_us, receipt)
    miss = read_miss(receipt.miss, staff=viewer.user.is_staff)
    known = (receipt, miss.sentence if miss else "")
    moment = read_moment(viewer, seen, record, waterfall, known)
    context = {
        "row": RequestRow(record, label),
        "record": record,
        "elsewhere": _elsewhere(viewer, record),
        "waterfall": beside(waterfall, moment.by_span),
        "line": line,
        "queue_us": waterfall.find("s5_infer.queue"),
        "prefill_us": waterfall.find("s5_infer.prefill"),
        "decode_us": waterfall.find("s5_infer.decode"),
        "network_us": waterfall.find("s5_infer.network"),
        "uncached_tokens": record.prompt_tokens - record.cached_tokens,
        "receipt": receipt_rows(receipt),
        "miss": miss,
        "moment": moment,
        "reasons": reasons(
            Evidence(
                record=record,
                key_label=label,
                project=names["project"],
                lines=transfers,
                reversals=reversals,
                price=_price(transfers),
                receipt=receipt,
                refused=find_refused(viewer, record, receipt),
                budget=budget_words(viewer, record, receipt),
            )
        ),
        "hardware": node_hardware(user=viewer.user, name=record.node) if record.node else {},
        "lines": lines,
        "reversals": reversals,
        "accounts": account_names(lines),
        "project": _read_of(viewer, record),
        "filter_query": filters.query(within),
        "newer": newer,
        "older": older,
    }
    return show(request, viewer, "requests", "requests/detail.html", context)
