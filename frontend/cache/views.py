"""Cache: how much of the prompts was reused, by what, what that saved, and why the rest was not."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from controlplane.core.permissions import Action
from controlplane.kernel.ids import public_id
from controlplane.telemetry.reading import TooMuchToRead
from frontend.cache.figures import BY_WORDS, BY_WORDS_STAFF, Cache, by_choices, make_cache
from frontend.cache.reads import read_cache
from frontend.shared.access import Viewer, page
from frontend.shared.asked import Asked, asked_context, asked_from
from frontend.shared.filters import choices
from frontend.shared.panels import panel_csv


def _words(viewer: Viewer) -> dict[str, str]:
    """What the viewer may divide by: tenants are seen side by side by staff alone."""
    return BY_WORDS_STAFF if viewer.may(Action.MARGIN_VIEW) else BY_WORDS


def _asked(request: HttpRequest, viewer: Viewer) -> Asked:
    return asked_from(request.GET, timezone.now(), by_choices(_words(viewer)))


def _read(viewer: Viewer, asked: Asked) -> Cache | None:
    try:
        return make_cache(read_cache(viewer, asked), asked)
    except TooMuchToRead:
        return None


@page(Action.ORGANIZATION_VIEW)
@require_GET
def cache(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    asked = _asked(request, viewer)
    found = _read(viewer, asked)
    projects = [(public_id("proj", one.id), one.name) for one in viewer.projects()]
    context = {
        **asked_context(viewer, asked, "cache"),
        "projects": choices(projects, asked.segment.project),
        "found": found,
        "figures": {one.name: one.as_json() for one in found.figures} if found else {},
        "dimensions": list(_words(viewer).items()),
    }
    return render(request, "cache/page.html", context)


@page(Action.ORGANIZATION_VIEW)
@require_GET
def cache_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    found = _read(viewer, _asked(request, viewer))
    if found is None:
        raise Http404
    return panel_csv(found.panels, chart)
