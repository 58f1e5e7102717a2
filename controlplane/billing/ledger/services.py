"""The jobs around the ledger: holds that expire, seals, partitions, and counters compared.

Each call is one short transaction or a bounded number of them. Holds and settlements are not here:
gateways call the SQL functions themselves.
"""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from controlplane.billing.ledger.hours import hours
from controlplane.core.queries import rows, value

DAYS_AHEAD = 7
EXPIRED_PER_CALL_MAX = 1_000
EXPIRE_CALLS_MAX = 20
# Far longer than any transaction of ours may last, so that no row can still land in a sealed range.
SEAL_LAG = timedelta(seconds=60)
SEAL_ROWS_MAX = 20_000
SEALS_PER_RUN_MAX = 20
# Lines are booked at most this many days after their request's id.
BOOKED_DAYS_MAX = 8
# The clocks that make ids and the one that books may differ by this much.
ID_MARGIN = timedelta(minutes=1)


class Swept(NamedTuple):
    """Holds that expired, and what they had reserved."""

    holds: int
    nano: int


class Difference(NamedTuple):
    """A budget whose counter disagrees with the sum of its open holds."""

    budget: uuid.UUID
    scope: str
    counted: int
    summed: int


def sweep_holds() -> Swept:
    """Expire the holds whose time is over, a bounded number at a time."""
    holds = nano = 0
    for _ in range(EXPIRE_CALLS_MAX):
        ((expired, more),) = rows(
            "SELECT holds, nano FROM ledger_expire(%s)", [EXPIRED_PER_CALL_MAX]
        )
        holds, nano = holds + expired, nano + more
        if expired < EXPIRED_PER_CALL_MAX:
            break
    return Swept(holds, nano)


def seal_ledger(until: datetime | None = None) -> int:
    """Seal what was booked before `until`, by default a minute ago; returns the rows sealed."""
    end = until or datetime.now(UTC) - SEAL_LAG
    sealed = 0
    for _ in range(SEALS_PER_RUN_MAX):
        more = value("SELECT ledger_seal(%s, %s, %s)", [end, SEAL_ROWS_MAX, BOOKED_DAYS_MAX])
        sealed += more
        if more == 0:
            break
    return sealed


def make_partitions(today: datetime | None = None) -> int:
    """Keep a week of the ledger's days ahead; returns how many were missing."""
    day = (today or datetime.now(UTC)).date()
    first, last = day - timedelta(days=1), day + timedelta(days=DAYS_AHEAD)
    return int(value("SELECT ledger_make_partitions(%s, %s)", [first, last]))


def reconcile() -> list[Difference]:
    """Budgets whose held counter is not the sum of their open holds: always none."""
    query = "SELECT budget, scope, counted, summed FROM ledger_held_differences()"
    return [Difference(*row) for row in rows(query)]


KEPT_S = 86_400
ROWS_MAX = 10_000


def claims_forget() -> int:
    """Remove claims and answers older than a day, so many a run; returns how many."""
    return int(value("SELECT inference_claims_forget(%s, %s)", [KEPT_S, ROWS_MAX]))


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
