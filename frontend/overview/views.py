"""The Overview: tiles, stage percentiles and charts, and each panel's figures as CSV."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.fleet.overview import limits_alone
from controlplane.kernel.ids import public_id
from controlplane.telemetry.reading import TooMuchToRead
from frontend.overview.figures import Overview
from frontend.overview.reads import read_overview
from frontend.shared.access import Viewer, page
from frontend.shared.addresses import gateway_url
from frontend.shared.asked import Asked, asked_context, asked_from
from frontend.shared.filters import choices
from frontend.shared.panels import panel_csv
from frontend.shared.snippets import first_curl

MODEL_UNKNOWN = "your-model"


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
    asked = asked_from(request.GET, timezone.now())
    found = _read(viewer, asked)
    served = next((one.name for one in model_list(enabled_only=True)), MODEL_UNKNOWN)
    projects = [(public_id("proj", one.id), one.name) for one in viewer.projects()]
    context = {
        **asked_context(viewer, asked, "overview"),
        "projects": choices(projects, asked.segment.project),
        "found": found,
        "limits_alone": limits_alone(timezone.now()),
        "figures": {one.name: one.as_json() for one in found.figures} if found else {},
        "curl": first_curl(gateway_url(request), served),
    }
    return render(request, "overview/page.html", context)


@page(Action.ORGANIZATION_VIEW)
@require_GET
def chart_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    found = _read(viewer, asked_from(request.GET, timezone.now()))
    if found is None:
        raise Http404
    return panel_csv(found.panels, chart)
