"""Latency: the stage waterfall of percentiles, its heat map, and latency by whatever divides it."""

import uuid

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.core.permissions import Action
from controlplane.slos.selectors import stage_owners
from controlplane.telemetry.selectors import SeriesQuery, series_by, series_read
from frontend.latency import figures
from frontend.shared.access import Viewer, page
from frontend.shared.asked import Asked, asked_context, asked_from, before_of, drawn_csv, in_time
from frontend.shared.stages import MEASURE_WORDS


def read_latency(organization: uuid.UUID, asked: Asked) -> figures.Read:
    """The range, the period before where it is asked for, and the range in groups."""
    by = series_by(_query(organization, asked, figures.BY_MEASURES), asked.chosen["by"])
    buckets = _query(organization, asked, ("ttft",))
    return figures.Read(
        points=series_read(_query(organization, asked, figures.wanted_measures(asked))),
        before=before_of(_query(organization, asked, figures.EVERYONE), asked),
        by=by,
        by_bucket=by
        if asked.chosen["by"] == "prompt_bucket"
        else series_by(buckets, "prompt_bucket"),
        budgets={name: owner.budget_us for name, owner in stage_owners().items()},
    )


def _query(organization: uuid.UUID, asked: Asked, measures: tuple[str, ...]) -> SeriesQuery:
    return SeriesQuery(
        organization=organization,
        start=asked.within.start,
        end=asked.within.end,
        step_s=asked.within.step_s,
        everyone=measures,
        own=(),
        model=asked.segment.model,
    )


def _read(viewer: Viewer, asked: Asked) -> figures.Latency | None:
    return in_time(
        lambda: figures.make_latency(
            read_latency(viewer.organization.id, asked), asked, timezone.now()
        )
    )


@page("latency", Action.ORGANIZATION_VIEW, "GET", shared=True)
def latency(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Where the time of all tenants' requests goes; a project's own is on the Overview."""
    asked = asked_from(request.GET, timezone.now(), figures.CHOICES)
    context = {
        **asked_context(viewer, asked, "latency", _read(viewer, asked), of_projects=False),
        "measures": list(MEASURE_WORDS.items()),
        "dimensions": list(figures.BY_WORDS.items()),
    }
    return render(request, "latency/page.html", context)


@page("latency/<slug:chart>.csv", Action.ORGANIZATION_VIEW, "GET", shared=True)
def latency_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    return drawn_csv(_read(viewer, asked_from(request.GET, timezone.now(), figures.CHOICES)), chart)
