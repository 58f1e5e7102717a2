"""Cuts a range of time into windows of bounded work by what an organization did in each hour."""

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta

from controlplane.billing.ledger.hours import hours

WINDOW_REQUESTS = 20_000
WINDOW_SPAN_MAX = timedelta(days=1)
HOUR = timedelta(hours=1)


def windows(
    organization: uuid.UUID, begins: datetime, ends: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Consecutive (opens, closes) over [begins, ends), both on whole hours.

    A window has at most a day, and at most `WINDOW_REQUESTS` charged requests or one hour of them.
    """
    found = hours(organizations=[organization], start=begins, end=ends, by=("hour",))
    requests = {one.hour: one.requests for one in found}
    opens, at, sum_ = begins, begins, 0
    while at < ends:
        more = requests.get(at, 0)
        if at > opens and (sum_ + more > WINDOW_REQUESTS or at - opens >= WINDOW_SPAN_MAX):
            yield opens, at
            opens, sum_ = at, 0
        sum_ += more
        at += HOUR
    if opens < ends:
        yield opens, ends
