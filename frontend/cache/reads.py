"""Reads what the Cache page needs: the organization's own usage, and a sample of its requests."""

import uuid
from collections.abc import Mapping
from datetime import datetime

from controlplane.catalog.selectors import model_list, price_in_force
from controlplane.kernel.price import Price
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.selectors import (
    Point,
    SeriesQuery,
    UsageSum,
    cache_by,
    series_read,
)
from controlplane.telemetry.selectors_requests import RequestFilter
from controlplane.telemetry.selectors_sample import request_sample
from controlplane.telemetry.selectors_usage import cache_by_organization
from controlplane.tenants.selectors import apikey_list
from controlplane.tenants.selectors_staff import organization_names
from frontend.cache.figures import ORGANIZATION, Read
from frontend.cache.misses import Misses, count_misses
from frontend.shared.access import Viewer
from frontend.shared.asked import Asked


def read_cache(viewer: Viewer, asked: Asked) -> Read:
    """The range, the period before where it is asked for, groups, prices and causes."""
    query, by = _query(viewer, asked, asked.within.start, asked.within.end), asked.chosen["by"]
    names = _names(viewer, by)
    groups = _groups(query, by, names)
    return Read(
        points=series_read(query),
        before=_before(viewer, asked),
        by=groups,
        by_model=groups if by == "model" else cache_by(query, "model"),
        prices=_prices(asked.within.end),
        names=names,
        misses=_misses(viewer, asked),
    )


def _groups(query: SeriesQuery, dimension: str, names: Mapping[str, str]) -> dict[str, UsageSum]:
    if dimension == ORGANIZATION:
        return cache_by_organization(query, map(uuid.UUID, names))
    return cache_by(query, dimension)


def _query(viewer: Viewer, asked: Asked, start: datetime, end: datetime) -> SeriesQuery:
    return SeriesQuery(
        organization=viewer.organization.id,
        start=start,
        end=end,
        step_s=asked.within.step_s,
        model=asked.segment.model,
        project=asked.segment.project_id,
    )


def _before(viewer: Viewer, asked: Asked) -> dict[datetime, Point] | None:
    if not asked.compare:
        return None
    shift, first = asked.within.shift, asked.within.steps[0]
    points = series_read(_query(viewer, asked, first - shift, first))
    return {at + shift: point for at, point in points.items()}


def _prices(at: datetime) -> dict[str, Price]:
    found = {model.name: price_in_force(model=model, at=at) for model in model_list()}
    return {name: price for name, price in found.items() if price is not None}


def _names(viewer: Viewer, dimension: str) -> Mapping[str, str]:
    """What ids are called, as far as the viewer may know; raises PermissionDenied of tenants."""
    if dimension == ORGANIZATION:
        return {str(one): name for one, name in organization_names(actor=viewer.user).items()}
    if dimension == "project":
        return {str(project.id): project.name for project in viewer.projects()}
    if dimension == "key":
        keys = apikey_list(user=viewer.user, organization_id=viewer.organization.id)
        return {str(key.id): key.label for key in keys}
    return {}


def _misses(viewer: Viewer, asked: Asked) -> Misses | None:
    """None where the sample did not come in time: the rest of the page does without."""
    wanted = RequestFilter(
        organization=viewer.organization.id,
        start=asked.within.start,
        end=asked.within.end,
        model=asked.segment.model,
        project=asked.segment.project_id,
    )
    try:
        return count_misses(request_sample(wanted))
    except TooMuchToRead:
        return None
