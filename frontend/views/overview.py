"""The Overview: tiles, stage percentiles and charts, and each chart's figures as CSV."""

from __future__ import annotations

import csv

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
from frontend.overview import Overview
from frontend.ranges import RELATIVE, TimeRange, range_from
from frontend.snippets import first_curl
from frontend.views.playground import gateway_url

MODEL_UNKNOWN = "your-model"


def _read(viewer: Viewer, within: TimeRange, percent: int) -> Overview | None:
    try:
        return read_overview(viewer.organization.id, within, timezone.now(), percent)
    except TooMuchToRead:
        return None


@page(Action.ORGANIZATION_VIEW)
@require_GET
def overview(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The first page."""
    within, complaint = range_from(request.GET, timezone.now())
    percent = percent_from(request.GET)
    found = _read(viewer, within, percent)
    models = model_list(enabled_only=True)
    context = {
        "viewer": viewer,
        "here": "overview",
        "within": within,
        "ranges": RELATIVE,
        "complaint": complaint,
        "percent": percent,
        "percentiles": PERCENTILES,
        "rest": f"percentile={percent}&" if percent != PERCENT_DEFAULT else "",
        "found": found,
        "figures": {one.name: one.as_json() for one in found.figures} if found else {},
        "curl": first_curl(gateway_url(request), models[0].name if models else MODEL_UNKNOWN),
    }
    return render(request, "pages/overview.html", context)


@page(Action.ORGANIZATION_VIEW)
@require_GET
def chart_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    """The figures of one chart in the range on screen."""
    within, _ = range_from(request.GET, timezone.now())
    found = _read(viewer, within, percent_from(request.GET))
    figure = next((one for one in found.figures if one.name == chart), None) if found else None
    if figure is None:
        raise Http404
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="sluice-{figure.name}.csv"'
    writer = csv.writer(response)
    writer.writerow(figure.head)
    writer.writerows(figure.rows())
    return response
