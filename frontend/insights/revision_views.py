"""Keeping a capacity worksheet for a quarter, and one that was kept beside what came; staff."""

import uuid

from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from controlplane.core.permissions import Action
from controlplane.insights.capacity import FIGURES, capacity_read, fill_in, whole_hours
from controlplane.insights.revisions import (
    ComparedFigure,
    revision_compare,
    revision_get,
    revision_keep,
)
from frontend.insights.days import days_from
from frontend.insights.revisions import RevisionRow
from frontend.shared import formats
from frontend.shared.access import Viewer, page, show
from frontend.shared.asked import in_time
from frontend.shared.forms import changes

PERCENT = 100


def compared_row(one: ComparedFigure) -> tuple[str, str, str, str]:
    """Figure, foreseen, what came, and that as a share of what was foreseen."""
    came = formats.MISSING if one.came is None else formats.significant(one.came)
    share = formats.MISSING if one.ratio is None else f"{PERCENT * one.ratio:.0f} %"
    return f"{one.label}, {one.unit}", formats.significant(one.kept), came, share


@changes("insights/capacity/keep", Action.FLEET_MANAGE, "capacity")
def capacity_keep(request: HttpRequest, viewer: Viewer) -> HttpResponse | str:
    """Keep what the form on screen was filled in with."""
    now, posted = timezone.now(), request.POST.dict()
    start, end = whole_hours(days_from(posted)[0], now)
    pools = in_time(lambda: capacity_read(actor=viewer.user, start=start, end=end))
    if pools is None:
        raise ValidationError({"days": "Too much data in these days. Choose fewer days."})
    wanted = posted.get("pool", "")
    found = next((one for one in pools if one.pool.name == wanted), None)
    if found is None:
        raise ValidationError({"pool": "Pool not found."})
    figures = {name: posted.get(name, "") for name, *_ in FIGURES}
    kept = revision_keep(
        actor=viewer.user,
        made=fill_in(found, figures),
        quarter=posted.get("quarter", ""),
        note=posted.get("note", "").strip(),
        now=now,
    )
    return redirect("capacity_revision", kept.id)


@page("insights/capacity/<worksheet:revision_id>", Action.FLEET_VIEW, "GET")
def capacity_revision(request: HttpRequest, viewer: Viewer, revision_id: uuid.UUID) -> HttpResponse:
    now = timezone.now()
    try:
        row = revision_get(actor=viewer.user, revision_id=revision_id)
    except ObjectDoesNotExist:
        raise Http404 from None
    found = in_time(lambda: revision_compare(actor=viewer.user, revision=row, now=now))
    context = {
        "tab": "capacity",
        "revision": RevisionRow(row),
        "compared": None if found is None else [compared_row(one) for one in found],
        "now": now,
    }
    return show(request, viewer, "insights", "insights/revision.html", context)
