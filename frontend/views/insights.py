"""Insights: what each key spends for nothing and how to end it, and the same as CSV."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from controlplane.core.permissions import Action
from controlplane.insights.hygiene import DAYS_DEFAULT, Hygiene, hygiene_read
from controlplane.kernel.hygiene import KINDS
from controlplane.kernel.money import usd_text
from controlplane.telemetry.reading import TooMuchToRead
from frontend.access import Viewer, page
from frontend.panels import TablePanel, panel_csv

DAYS = (1, DAYS_DEFAULT, 30, 90)
HEAD = [
    "key", "key_id", "requests", "looked_at", "finding", "requests_with_it", "tokens", "saves_usd",
    "saves_nano_usd", "fix",
]  # fmt: skip


@page(Action.REQUEST_VIEW)
@require_GET
def insight_index(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Keys of the organization, the one that could save most first."""
    days, complaint = days_from(request.GET)
    found = _read(viewer, days)
    context = {
        "viewer": viewer,
        "here": "insights",
        "tab": "insights",
        "days": days,
        "day_choices": DAYS,
        "complaint": complaint,
        "found": found,
        "kinds": KINDS.items(),
        "now": timezone.now(),
    }
    return render(request, "pages/insights.html", context)


@page(Action.REQUEST_VIEW)
@require_GET
def insight_csv(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every finding of every key in the range on screen."""
    days, _ = days_from(request.GET)
    found = _read(viewer, days)
    if found is None:
        told = "These days could not be read in time."
        return HttpResponse(told, status=503, content_type="text/plain; charset=utf-8")
    body = [
        [
            one.label,
            str(one.key),
            str(one.requests),
            str(one.looked),
            waste.kind,
            str(waste.requests),
            str(waste.tokens),
            usd_text(waste.nano),
            str(waste.nano),
            waste.fix,
        ]
        for one in found.keys
        for waste in one.wastes
    ]
    return panel_csv([TablePanel("insights", "Insights", HEAD, body)], "insights")


def days_from(query: Mapping[str, str]) -> tuple[int, str]:
    """How many days, and a sentence where the question could not be answered as put."""
    text = query.get("days", str(DAYS_DEFAULT))
    if text.isascii() and text.isdecimal() and int(text[:4]) in DAYS:
        return int(text[:4]), ""
    choices = ", ".join(map(str, DAYS))
    return DAYS_DEFAULT, f"Days are {choices}; showing {DAYS_DEFAULT}."


def hours_of(days: int) -> tuple[datetime, datetime]:
    """So many days up to the end of the present hour."""
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return end - timedelta(days=days), end


def _read(viewer: Viewer, days: int) -> Hygiene | None:
    start, end = hours_of(days)
    try:
        return hygiene_read(
            actor=viewer.user, organization=viewer.organization.id, start=start, end=end
        )
    except TooMuchToRead:
        return None
