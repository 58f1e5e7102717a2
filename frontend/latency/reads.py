"""Reads what the Latency page needs, all of it series of the whole installation."""

import uuid
from datetime import datetime

from controlplane.slos.selectors import stage_owners
from controlplane.telemetry.selectors import Point, SeriesQuery, series_by, series_read
from frontend.latency.figures import BY_MEASURES, EVERYONE, Read, wanted_measures
from frontend.shared.asked import Asked


def read_latency(organization: uuid.UUID, asked: Asked) -> Read:
    """The range, the period before where it is asked for, and the range in groups."""
    by = series_by(_query(organization, asked, BY_MEASURES), asked.chosen["by"])
    buckets = _query(organization, asked, ("ttft",))
    return Read(
        points=series_read(_query(organization, asked, wanted_measures(asked))),
        before=_before(organization, asked),
        by=by,
        by_bucket=by
        if asked.chosen["by"] == "prompt_bucket"
        else series_by(buckets, "prompt_bucket"),
        budgets={name: owner.budget_us for name, owner in stage_owners().items()},
    )


def _before(organization: uuid.UUID, asked: Asked) -> dict[datetime, Point] | None:
    if not asked.compare:
        return None
    shift, first = asked.within.shift, asked.within.steps[0]
    points = series_read(_query(organization, asked, EVERYONE, first - shift, first))
    return {at + shift: point for at, point in points.items()}


def _query(
    organization: uuid.UUID,
    asked: Asked,
    measures: tuple[str, ...],
    start: datetime | None = None,
    end: datetime | None = None,
) -> SeriesQuery:
    return SeriesQuery(
        organization=organization,
        start=start or asked.within.start,
        end=end or asked.within.end,
        step_s=asked.within.step_s,
        everyone=measures,
        own=(),
        model=asked.segment.model,
    )
