"""Reads what the Overview needs and makes it: one path for page, CSV and live stream."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta

from controlplane.billing.selectors_pages import spend_nano
from controlplane.fleet.overview import waiting_of
from controlplane.kernel.gauges import SAMPLES
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.selectors import Point, SeriesQuery, series_read, step_floor
from frontend.filters import Segment
from frontend.overview import EVERYONE, OWN, Overview, Waits, make_overview
from frontend.ranges import TimeRange

# Writers write a minute's last state some seconds after it is over.
REREAD = timedelta(minutes=2)
SPEND_AGE_S_MAX = 10.0


def _query(
    organization: uuid.UUID, segment: Segment, within: TimeRange, start: datetime
) -> SeriesQuery:
    return SeriesQuery(
        organization=organization,
        start=start,
        end=within.end,
        step_s=within.step_s,
        everyone=EVERYONE,
        own=OWN,
        gauges=SAMPLES,
        model=segment.model,
        project=segment.project_id,
    )


def _spend(organization: uuid.UUID, segment: Segment, within: TimeRange) -> int | None:
    try:
        return spend_nano(
            organization=organization,
            start=within.start,
            end=within.end,
            model=segment.model,
            project=segment.project_id,
        )
    except TooMuchToRead:
        return None


def read_overview(
    organization: uuid.UUID, segment: Segment, within: TimeRange, now: datetime, percent: int
) -> Overview:
    """Everything read anew."""
    points = series_read(_query(organization, segment, within, within.start))
    spend = _spend(organization, segment, within)
    waits = Waits(*waiting_of(organization, now))
    return make_overview(points, within, now, spend_nano=spend, percent=percent, waits=waits)


class RollingOverview:
    """The same for one viewer who stays: only the newest steps are read again each time."""

    def __init__(self, organization: uuid.UUID, segment: Segment, percent: int) -> None:
        self._organization = organization
        self._segment = segment
        self._percent = percent
        self._points: dict[datetime, Point] = {}
        self._read_to: datetime | None = None
        self._spend: int | None = None
        self._spend_at: datetime | None = None

    def read(self, within: TimeRange, now: datetime) -> Overview:
        """The overview of a range that has moved on since the last call."""
        first = step_floor(within.start, within.step_s)
        start = within.start
        if self._read_to is not None:
            start = max(first, step_floor(self._read_to - REREAD, within.step_s))
        fresh = series_read(_query(self._organization, self._segment, within, start))
        kept = {at: point for at, point in self._points.items() if first <= at < start}
        self._points = {**kept, **fresh}
        self._read_to = now
        if self._spend_at is None or (now - self._spend_at).total_seconds() > SPEND_AGE_S_MAX:
            self._spend = _spend(self._organization, self._segment, within)
            self._spend_at = now
        return make_overview(
            self._points,
            within,
            now,
            spend_nano=self._spend,
            percent=self._percent,
            waits=Waits(*waiting_of(self._organization, now)),
        )
