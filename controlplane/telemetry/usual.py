"""What one request is compared with: every measure over the hour in which it ended, and who else
was on its node.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from controlplane.kernel.histogram import Histogram
from controlplane.kernel.measures import HEADLINES, LAYERS
from controlplane.telemetry import tiers
from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors import SeriesQuery, series_by, series_whole

HOUR = timedelta(hours=1)
# Of fewer requests of the route, those of the whole model are compared with.
ROUTE_COUNT_LEAST = 20
SHARED_MS_MAX = 1_000
LONGEST_MAX = 5


@dataclass(frozen=True)
class UsualHour:
    """Histograms by measure of all requests of a model within an hour.

    Of `by_route` those of the request's route alone, where there were enough.
    """

    start: datetime
    end: datetime
    series: dict[str, Histogram]
    by_route: frozenset[str]


def usual_hour(record: RequestRecord) -> UsualHour:
    """The hour up to the request's end, in the installation; raises TooMuchToRead."""
    ended = record.started_at + timedelta(microseconds=record.total_us)
    step = timedelta(seconds=tiers.ROLLUP_S)
    end = tiers.step_floor(ended, tiers.ROLLUP_S) + step

    def query(measures: tuple[str, ...]) -> SeriesQuery:
        return SeriesQuery(
            organization=record.organization,
            start=end - HOUR,
            end=end,
            step_s=tiers.ROLLUP_S,
            everyone=measures,
            model=record.model,
        )

    series = series_whole(query((*HEADLINES, *LAYERS)))
    route = series_by(query(HEADLINES), "route").get(record.route, {}) if record.route else {}
    own = {name: one for name, one in route.items() if one.count >= ROUTE_COUNT_LEAST}
    return UsualHour(end - HOUR, end, series | own, frozenset(own))


class Sharing(NamedTuple):
    """Other requests that overlapped with one on its node: how many, of how many other tenants, and
    the ids of the longest that are the caller's to see.
    """

    requests: int
    organizations: int
    longest: list[UUID]


def request_sharing(organizations: list[UUID], record: RequestRecord) -> Sharing:
    """Of others there are counts alone, which tell no one who they were; raises TooMuchToRead."""
    with bounded_read(organizations, SHARED_MS_MAX), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM telemetry_sharing(%s, %s)", [record.request, LONGEST_MAX])
        requests, others, longest = cursor.fetchone()
    return Sharing(requests, others, longest or [])
