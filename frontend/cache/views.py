"""Cache: how much of the prompts was reused, by what, what that saved, and why the rest was not."""

import uuid
from collections.abc import Mapping
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.catalog.selectors import model_list, price_in_force
from controlplane.core.permissions import Action
from controlplane.kernel.price import Price
from controlplane.telemetry.selectors import SeriesQuery, UsageSum, cache_by, series_read
from controlplane.telemetry.selectors_requests import RequestFilter, request_sample
from controlplane.telemetry.selectors_usage import cache_by_organization
from controlplane.tenants.selectors import key_names, organization_names
from frontend.cache import figures
from frontend.shared.access import Viewer, page
from frontend.shared.asked import Asked, asked_context, asked_from, before_of, drawn_csv, in_time


def read_cache(viewer: Viewer, asked: Asked) -> figures.Read:
    """The range, the period before where it is asked for, groups, prices and causes."""
    by = asked.chosen["by"]
    own, step_s = viewer.organization.id, asked.within.step_s
    query = SeriesQuery(organization=own, step_s=step_s, **asked.wanted)
    names = _names(viewer, by)
    groups = _groups(query, by, names)
    return figures.Read(
        points=series_read(query),
        before=before_of(query, asked),
        by=groups,
        by_model=groups if by == "model" else cache_by(query, "model"),
        prices=_prices(asked.within.end),
        names=names,
        misses=_misses(viewer, asked),
    )


def _groups(query: SeriesQuery, dimension: str, names: Mapping[str, str]) -> dict[str, UsageSum]:
    if dimension == figures.ORGANIZATION:
        return cache_by_organization(query, map(uuid.UUID, names))
    return cache_by(query, dimension)


def _prices(at: datetime) -> dict[str, Price]:
    found = {model.name: price_in_force(model=model, at=at) for model in model_list(removed=True)}
    return {name: price for name, price in found.items() if price is not None}


def _names(viewer: Viewer, dimension: str) -> Mapping[str, str]:
    """What ids are called, as far as the viewer may know; raises PermissionDenied of tenants."""
    if dimension == figures.ORGANIZATION:
        return {str(one): name for one, name in organization_names(actor=viewer.user).items()}
    if dimension == "project":
        return {str(project.id): project.name for project in viewer.projects()}
    if dimension == "key":
        names = key_names(user=viewer.user, organization_id=viewer.organization.id)
        return {str(key): name for key, name in names.items()}
    return {}


def _misses(viewer: Viewer, asked: Asked) -> figures.Misses | None:
    """None where the sample did not come in time: the rest of the page does without."""
    wanted = RequestFilter(organization=viewer.organization.id, **asked.wanted)
    return in_time(lambda: figures.count_misses(request_sample(wanted)))


def _words(viewer: Viewer) -> dict[str, str]:
    """What the viewer may divide by: tenants are seen side by side by staff alone."""
    return figures.BY_WORDS_STAFF if viewer.may(Action.MARGIN_VIEW) else figures.BY_WORDS


def _asked(request: HttpRequest, viewer: Viewer) -> Asked:
    return asked_from(request.GET, timezone.now(), figures.by_choices(_words(viewer)))


def _read(viewer: Viewer, asked: Asked) -> figures.Cache | None:
    return in_time(lambda: figures.make_cache(read_cache(viewer, asked), asked))


@page("cache", Action.ORGANIZATION_VIEW, "GET")
def cache(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    asked = _asked(request, viewer)
    context = {
        **asked_context(viewer, asked, "cache", _read(viewer, asked)),
        "dimensions": list(_words(viewer).items()),
    }
    return render(request, "cache/page.html", context)


@page("cache/<slug:chart>.csv", Action.ORGANIZATION_VIEW, "GET")
def cache_csv(request: HttpRequest, viewer: Viewer, chart: str) -> HttpResponse:
    return drawn_csv(_read(viewer, _asked(request, viewer)), chart)
