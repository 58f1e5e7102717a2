"""How long a priority is shed once an objective's page has asked for it. Pure arithmetic.

Requests that are shed count for nothing: an objective that was in danger through them looks
well as soon as they are gone, and would let them in only to be in danger again. So a shed does not
end with its alert. It ends once what is left of the traffic, or its absence, has been well for
`WELL`, and not before its least time; begun again soon after its end, that time is doubled.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

WELL = timedelta(minutes=10)
LEAST, LEAST_MAX = timedelta(minutes=10), timedelta(hours=4)
# A shed that begins so soon after the last one's end is its relapse.
RELAPSE = timedelta(hours=1)
# Gateways ignore a shed that no one has renewed for so long. Renewing makes them read the
# configuration again: it is done when half of the lease is over.
LEASE = timedelta(minutes=5)


class ShedTerms(NamedTuple):
    """A priority shed since `since`, for `least` at least, and nowhere after `until`.

    What else came has been well from `well_since` on; `released_at` is when it was let in again.
    """

    since: datetime
    least: timedelta
    well_since: datetime | None
    until: datetime
    released_at: datetime | None = None


def next_terms(
    last: ShedTerms | None, *, paging: bool, burning: bool, now: datetime
) -> ShedTerms | None:
    """What becomes of an objective's last shed; None where there has been none and need be none.

    `paging` is whether a page fires, `burning` whether a rule of pages burns at all, however few
    the requests. A lease that ran out ended its shed then: no one watched since.
    """
    if last is None or last.released_at is not None:
        return _begun(last, now) if paging else last
    if last.until <= now:
        return last._replace(released_at=last.until)
    well_since = None if burning else last.well_since or now
    if well_since is not None and now - well_since >= WELL and now - last.since >= last.least:
        return last._replace(well_since=well_since, released_at=now)
    until = now + LEASE if last.until - now <= LEASE / 2 else last.until
    return last._replace(well_since=well_since, until=until)


def _begun(last: ShedTerms | None, now: datetime) -> ShedTerms:
    least = LEAST
    if last is not None and last.released_at is not None and now - last.released_at < RELAPSE:
        least = min(2 * last.least, LEAST_MAX)
    return ShedTerms(now, least, None, now + LEASE)
