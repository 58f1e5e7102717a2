"""Reads what the Overview needs and makes it: one path for page, CSV and live stream."""

import uuid
from datetime import datetime, timedelta

from controlplane.billing.ledger.selectors import spend_nano
from controlplane.fleet.overview import waiting_of
from controlplane.kernel.gauges import SAMPLES
from controlplane.telemetry.reading import TooMuchToRead
from controlplane.telemetry.selectors import Point, SeriesQuery, series_read
from controlplane.telemetry.tiers import step_floor
from frontend.overview.figures import EVERYONE, Beside, Overview, make_overview
from frontend.overview.stage_owners import owners_now
from frontend.overview.stage_rows import Owner
from frontend.shared.asked import Asked
from frontend.shared.filters import Segment
from frontend.shared.ranges import TimeRange
from frontend.shared.tiles import OWN, Waits

# Writers write a minute's last state some seconds after it is over.
REREAD = timedelta(minutes=2)
SPEND_AGE_S_MAX = 10.0


def _query(
    organization: uuid.UUID,
    asked: Asked,
    start: datetime,
    end: datetime,
    *,
    shared: bool,
    gauges: tuple[str, ...] = SAMPLES,
) -> SeriesQuery:
    """`shared` reads figures of all tenants, too."""
    return SeriesQuery(
        organization=organization,
        start=start,
        end=end,
        step_s=asked.within.step_s,
        everyone=EVERYONE if shared else (),
        own=OWN,
        gauges=gauges if shared else (),
        model=asked.segment.model,
        project=asked.segment.project_id,
    )


def _before(organization: uuid.UUID, asked: Asked, *, shared: bool) -> dict[datetime, Point] | None:
    """The period before by the times of this one, if it is to be compared with."""
    if not asked.compare:
        return None
    shift, first = asked.within.shift, asked.within.steps[0]
    points = series_read(
        _query(organization, asked, first - shift, first, shared=shared, gauges=())
    )
    return {at + shift: point for at, point in points.items()}


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
    organization: uuid.UUID, asked: Asked, now: datetime, *, shared: bool
) -> Overview:
    """Everything read anew; `shared` with figures of all tenants."""
    within = asked.within
    return make_overview(
        series_read(_query(organization, asked, within.start, within.end, shared=shared)),
        asked,
        now,
        beside=Beside(
            spend_nano=_spend(organization, asked.segment, within),
            waits=Waits(*waiting_of(organization, now)),
            owners=owners_now(),
        ),
        before=_before(organization, asked, shared=shared),
    )


class RollingOverview:
    """The same for one viewer who stays: only the newest steps are read again each time."""

    def __init__(self, organization: uuid.UUID, *, shared: bool) -> None:
        self._organization = organization
        self._shared = shared
        self._points: dict[datetime, Point] = {}
        self._read_to: datetime | None = None
        self._spend: int | None = None
        self._owners: dict[str, Owner] = {}
        self._spend_at: datetime | None = None
        self._before: dict[datetime, Point] | None = None
        self._before_of: datetime | None = None

    def read(self, asked: Asked, now: datetime) -> Overview:
        """The overview of a range that has moved on since the last call."""
        within = asked.within
        first = within.steps[0]
        start = within.start
        if self._read_to is not None:
            start = max(first, step_floor(self._read_to - REREAD, within.step_s))
        query = _query(self._organization, asked, start, within.end, shared=self._shared)
        fresh = series_read(query)
        kept = {at: point for at, point in self._points.items() if first <= at < start}
        self._points = {**kept, **fresh}
        self._read_to = now
        self._read_rest(asked, now)
        return make_overview(
            self._points,
            asked,
            now,
            beside=Beside(self._spend, Waits(*waiting_of(self._organization, now)), self._owners),
            before=self._before,
        )

    def _read_rest(self, asked: Asked, now: datetime) -> None:
        """What changes slowly: money, owners, and the past, which moves on with the range."""
        if self._spend_at is None or (now - self._spend_at).total_seconds() > SPEND_AGE_S_MAX:
            self._spend = _spend(self._organization, asked.segment, asked.within)
            self._owners = owners_now()
            self._spend_at = now
        if self._before_of != asked.within.steps[0]:
            self._before = _before(self._organization, asked, shared=self._shared)
            self._before_of = asked.within.steps[0]
