"""The live map: what runs, drawn from heartbeats; for staff."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from controlplane.composed.livemap.gather import live_map as live_map_read
from controlplane.core.permissions import Action
from frontend.fleet.map_layout import BOX_HEIGHT, BOX_WIDTH, DETAIL_HEIGHT, WIDTH, drawing_of
from frontend.shared.access import Viewer, moving, page, show

# So that what is gone for four seconds is shown as gone within five.
POLL_MS = 1_000


def _now(viewer: Viewer) -> dict[str, Any]:
    drawing = drawing_of(live_map_read(actor=viewer.user))
    ill = [each for each in drawing.parts if each.part.standing.health in ("warn", "bad")]
    return {
        "viewer": viewer,
        "now": timezone.now(),
        "drawing": drawing,
        "ill": ill,
        "width": WIDTH,
        "box_width": BOX_WIDTH,
        "box_height": BOX_HEIGHT,
        "detail_height": DETAIL_HEIGHT,
    }


@page("map", Action.FLEET_VIEW, "GET")
def live_map(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Everything that runs; htmx asks for it again and again."""

    def whole() -> HttpResponse:
        context = _now(viewer) | {"poll_ms": POLL_MS}
        return show(request, viewer, "live_map", "fleet/map.html", context)

    return moving(request, "fleet/parts/map_now.html", lambda: _now(viewer), whole)
