"""The Overview: tiles, stage percentiles and charts, and each chart's figures as CSV."""

from __future__ import annotations

import csv
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.telemetry.reading import TooMuchToRead
from frontend.access import Viewer, page
from frontend.cells import PERCENT_DEFAULT, PERCENTILES, percent_from
from frontend.figures_now import read_overview
from frontend.filters import Segment, choices, segment_from
from frontend.overview import Overview
from frontend.ranges import RELATIVE, TimeRange, range_from
from frontend.snippets import first_curl
from frontend.views.playground import gateway_url

MODEL_UNKNOWN = "your-model"


def _read(viewer: Viewer, segment: Segment, within: TimeRange, percent: int) -> Overview | None:
    try:
        return read_overview(viewer.organization.id, segment, within, timezone.now(), percent)
    except TooMuchToRead:
        return None


@page(Action.ORGANIZATION_VIEW)
@require_GET
def overview(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The first page."""
    within, *complaints = range_from(request.GET, timezone.now())
    percent, complaint = percent_from(request.GET)
    segment, unread = segment_from(request.GET)
    found = _read(viewer, segment, within, percent)
    models = model_list()
    served = next((one.name for one in models if one.enabled), MODEL_UNKNOWN)
    kept = {**segment.given, **({"percentile": percent} if percent != PERCENT_DEFAULT else {})}
    context = {
        "viewer": viewer,
        "here": "overview",
        "within": within,
        "ranges": RELATIVE,
        "complaint": " ".join(filter(None, (*complaints, complaint, unread))),
        "segment": segment,
        "models": choices([(one.name, one.name) for one in models], segment.model),
        "projects": choices([(one.id.hex, one.name) for one in viewer.projects()], segment.project),
        "percent": percent,
        "percentiles": PERCENTILES,
        "kept": kept,
        "rest": f"{urlencode(kept)}&" if kept else "",
        "live_query": urlencode({**within.query, "percentile": percent, **segment.given}),
        "found": found,
        "figures": {one.name: one.as_json() for one in found.figures} if found else {},
        "curl": first_curl(gateway_url(request), served),
    }
    return render(request, "pages/overview.html", context)


@page(Action.ORGANIZATION_VIEW)
@require_GET
def chart_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    """The figures of one chart in the range on screen."""
    within, _ = range_from(request.GET, timezone.now())
    (percent, _), (segment, _) = percent_from(request.GET), segment_from(request.GET)
    found = _read(viewer, segment, within, percent)
    figure = next((one for one in found.figures if one.name == chart), None) if found else None
    if figure is None:
        raise Http404
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="sluice-{figure.name}.csv"'
    writer = csv.writer(response)
    writer.writerow(figure.head)
    writer.writerows(figure.rows())
    return response
