"""Reads what the Overview needs and makes it: one path for page, CSV and live stream."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from controlplane.billing.ledger.selectors import spend_nano
from controlplane.fleet.overview import waiting_of
from controlplane.kernel.measures import SAMPLES
from controlplane.slos.models import StageOwner
from controlplane.slos.selectors import stage_owners
from controlplane.telemetry.selectors import Point, SeriesQuery, series_read
from controlplane.telemetry.tiers import step_floor
from frontend.overview.figures import EVERYONE, Beside, Overview, make_overview
from frontend.shared.asked import Asked, before_of, in_time
from frontend.shared.tiles import OWN, Waits

# Writers write a minute's last state some seconds after it is over.
REREAD = timedelta(minutes=2)
SPEND_AGE_S_MAX = 10.0


def _query(organization: UUID, asked: Asked, *, shared: bool) -> SeriesQuery:
    """`shared` reads figures of all tenants, too."""
    return SeriesQuery(
        organization=organization,
        step_s=asked.within.step_s,
        everyone=EVERYONE if shared else (),
        own=OWN,
        gauges=SAMPLES if shared else (),
        **asked.wanted,
    )


def _before(organization: UUID, asked: Asked, *, shared: bool) -> dict[datetime, Point] | None:
    return before_of(replace(_query(organization, asked, shared=shared), gauges=()), asked)


def _spend(organization: UUID, asked: Asked) -> int | None:
    return in_time(lambda: spend_nano(organization=organization, **asked.wanted))


def read_overview(organization: UUID, asked: Asked, now: datetime, *, shared: bool) -> Overview:
    """Everything read anew; `shared` with figures of all tenants."""
    return make_overview(
        series_read(_query(organization, asked, shared=shared)),
        asked,
        now,
        beside=Beside(
            spend_nano=_spend(organization, asked),
            waits=Waits(*waiting_of(organization, now)),
            owners=stage_owners(),
        ),
        before=_before(organization, asked, shared=shared),
    )


class RollingOverview:
    """The same for one viewer who stays: only the newest steps are read again each time."""

    def __init__(self, organization: UUID, *, shared: bool) -> None:
        self._organization = organization
        self._shared = shared
        self._points: dict[datetime, Point] = {}
        self._read_to: datetime | None = None
        self._spend: int | None = None
        self._owners: dict[str, StageOwner] = {}
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
        query = _query(self._organization, asked, shared=self._shared)
        fresh = series_read(replace(query, start=start))
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
            self._spend = _spend(self._organization, asked)
            self._owners = stage_owners()
            self._spend_at = now
        if self._before_of != asked.within.steps[0]:
            self._before = _before(self._organization, asked, shared=self._shared)
            self._before_of = asked.within.steps[0]
