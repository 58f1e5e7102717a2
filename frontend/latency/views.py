"""Latency: the stage waterfall of percentiles, its heat map, and latency by whatever divides it."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from controlplane.core.permissions import Action
from controlplane.telemetry.reading import TooMuchToRead
from frontend.latency.figures import BY_WORDS, CHOICES, MEASURE_WORDS, Latency, make_latency
from frontend.latency.reads import read_latency
from frontend.shared.access import Viewer, page
from frontend.shared.asked import Asked, asked_context, asked_from
from frontend.shared.panels import panel_csv


def _read(viewer: Viewer, asked: Asked) -> Latency | None:
    try:
        return make_latency(read_latency(viewer.organization.id, asked), asked, timezone.now())
    except TooMuchToRead:
        return None


@page(Action.ORGANIZATION_VIEW, shared=True)
@require_GET
def latency(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Where the time of all tenants' requests goes; a project's own is on the Overview."""
    asked = asked_from(request.GET, timezone.now(), CHOICES)
    found = _read(viewer, asked)
    context = {
        **asked_context(viewer, asked, "latency"),
        "found": found,
        "figures": {one.name: one.as_json() for one in found.figures} if found else {},
        "measures": list(MEASURE_WORDS.items()),
        "dimensions": list(BY_WORDS.items()),
    }
    return render(request, "latency/page.html", context)


@page(Action.ORGANIZATION_VIEW, shared=True)
@require_GET
def latency_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    found = _read(viewer, asked_from(request.GET, timezone.now(), CHOICES))
    if found is None:
        raise Http404
    return panel_csv(found.panels, chart)
