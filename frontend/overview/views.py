"""The Overview: tiles, stage percentiles and charts, and each panel's figures as CSV."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.catalog.selectors import model_list
from controlplane.core.permissions import Action
from controlplane.fleet.overview import limits_alone
from frontend.overview.figures import Overview
from frontend.overview.reads import read_overview
from frontend.shared.access import Viewer, page
from frontend.shared.addresses import gateway_url
from frontend.shared.asked import Asked, asked_context, asked_from, drawn_csv, in_time
from frontend.shared.snippets import first_curl

MODEL_UNKNOWN = "your-model"


def _read(viewer: Viewer, asked: Asked) -> Overview | None:
    now, shared = timezone.now(), viewer.sees_shared
    return in_time(lambda: read_overview(viewer.organization.id, asked, now, shared=shared))


@page("", Action.ORGANIZATION_VIEW, "GET")
def overview(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    asked = asked_from(request.GET, timezone.now())
    served = next((one.name for one in model_list(enabled_only=True)), MODEL_UNKNOWN)
    context = {
        **asked_context(viewer, asked, "overview", _read(viewer, asked)),
        "live": True,
        "limits_alone": limits_alone(timezone.now()),
        "curl": first_curl(gateway_url(request), served),
    }
    return render(request, "overview/page.html", context)


@page("overview/<slug:chart>.csv", Action.ORGANIZATION_VIEW, "GET")
def overview_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    return drawn_csv(_read(viewer, asked_from(request.GET, timezone.now())), chart)
