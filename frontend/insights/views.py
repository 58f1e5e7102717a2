"""Insights: what each key spends for nothing and how to end it, and the same as CSV."""

from datetime import datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from controlplane.core.permissions import Action
from controlplane.insights.hygiene import DAYS_MAX, WasteTotals, hygiene_read
from controlplane.kernel.ids import public_id
from controlplane.kernel.insights.hygiene import KINDS
from controlplane.kernel.money import usd_text
from controlplane.telemetry.reading import TooMuchToRead
from frontend.insights.days import DAYS, DaysAsked, days_asked
from frontend.insights.waste_rows import KeyRows, WasteRow, key_rows
from frontend.shared.access import Viewer, page, show
from frontend.shared.panels import TablePanel, panel_csv

HEAD = [
    "key", "key_id", "requests", "looked_at", "finding", "requests_with_it", "tokens", "saves_usd",
    "saves_nano_usd", "fix",
]  # fmt: skip
HEAD_BEFORE = ["requests_before", "requests_with_it_before", "tokens_before", "saves_nano_before"]


@page(Action.REQUEST_VIEW)
@require_GET
def insight_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Keys of the organization, the one that could save most first."""
    asked = days_asked(request.GET, timezone.now())
    rows = _read(viewer, asked)
    context = {
        "tab": "insights",
        "asked": asked,
        "days": asked.days,
        "day_choices": DAYS,
        "complaint": asked.complaint,
        "rows": rows,
        "too_old": asked.compare and _too_old(asked),
        "kinds": KINDS.items(),
        "now": timezone.now(),
    }
    return show(request, viewer, "insights", "insights/page.html", context)


@page(Action.REQUEST_VIEW)
@require_GET
def insight_csv(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every finding of every key in the range on screen, beside the days before if asked."""
    asked = days_asked(request.GET, timezone.now())
    rows = _read(viewer, asked)
    if rows is None:
        told = "The query timed out."
        return HttpResponse(told, status=503, content_type="text/plain; charset=utf-8")
    head = HEAD + HEAD_BEFORE if asked.compare else HEAD
    body = [_line(one, row, asked.compare) for one in rows for row in one.wastes]
    return panel_csv([TablePanel("insights", "Insights", head, body)], "insights")


def _line(one: KeyRows, row: WasteRow, compare: bool) -> list[str]:
    waste = row.now
    line = [
        one.key.label,
        public_id("key", one.key.key) if one.key.key else "",
        str(one.key.requests),
        str(one.key.looked),
        waste.kind,
        str(waste.requests),
        str(waste.tokens),
        usd_text(waste.nano),
        str(waste.nano),
        waste.fix,
    ]
    if not compare:
        return line
    if one.earlier is None or row.earlier is None:
        return line + [""] * len(HEAD_BEFORE)
    was = row.earlier
    return [*line, *map(str, (one.earlier.requests, was.requests, was.tokens, was.nano))]


def _too_old(asked: DaysAsked) -> bool:
    """Whether counts of the days before are partly gone."""
    return asked.end - asked.before > timedelta(days=DAYS_MAX)


def _read(viewer: Viewer, asked: DaysAsked) -> list[KeyRows] | None:
    try:
        found = _hygiene(viewer, asked.start, asked.end)
        earlier = None
        if asked.compare and not _too_old(asked):
            earlier = _hygiene(viewer, asked.before, asked.start)
    except TooMuchToRead:
        return None
    return key_rows(found, earlier)


def _hygiene(viewer: Viewer, start: datetime, end: datetime) -> WasteTotals:
    return hygiene_read(
        actor=viewer.user, organization=viewer.organization.id, start=start, end=end
    )
