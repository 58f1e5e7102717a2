"""The Overview: tiles, stage percentiles and charts, and each panel's figures as CSV."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.fleet.overview import limits_alone
from controlplane.telemetry.reading import TooMuchToRead
from frontend.access import Viewer, page
from frontend.asked import Asked, asked_from
from frontend.cells import PERCENTILES
from frontend.figures_now import read_overview
from frontend.filters import choices
from frontend.overview import Overview
from frontend.panels import panel_csv
from frontend.ranges import RELATIVE
from frontend.snippets import first_curl
from frontend.views.playground import gateway_url

MODEL_UNKNOWN = "your-model"


def asked_context(viewer: Viewer, asked: Asked, here: str) -> dict[str, Any]:
    """What the head and the filters of every page of figures show."""
    models = [(one.name, one.name) for one in model_list()]
    return {
        "viewer": viewer,
        "here": here,
        "asked": asked,
        "within": asked.within,
        "ranges": RELATIVE,
        "models": choices(models, asked.segment.model),
        "percentiles": PERCENTILES,
    }


def _read(viewer: Viewer, asked: Asked) -> Overview | None:
    try:
        return read_overview(
            viewer.organization.id, asked, timezone.now(), shared=viewer.sees_shared
        )
    except TooMuchToRead:
        return None


@page(Action.ORGANIZATION_VIEW)
@require_GET
def overview(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """The first page."""
    asked = asked_from(request.GET, timezone.now())
    found = _read(viewer, asked)
    served = next((one.name for one in model_list(enabled_only=True)), MODEL_UNKNOWN)
    projects = [(one.id.hex, one.name) for one in viewer.projects()]
    context = {
        **asked_context(viewer, asked, "overview"),
        "projects": choices(projects, asked.segment.project),
        "found": found,
        "limits_alone": limits_alone(timezone.now()),
        "figures": {one.name: one.as_json() for one in found.figures} if found else {},
        "curl": first_curl(gateway_url(request), served),
    }
    return render(request, "pages/overview.html", context)


@page(Action.ORGANIZATION_VIEW)
@require_GET
def chart_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    """The figures of one panel in the range on screen."""
    found = _read(viewer, asked_from(request.GET, timezone.now()))
    if found is None:
        raise Http404
    return panel_csv(found.panels, chart)
