"""Whether the ledger can be trusted now: holds in progress, expired ones, lag, estimates.

Figures of the last day, from its newest lines where there are very many; `lines` tells how many.
"""

import uuid
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from controlplane.billing.ledger.models import Reconciliation
from controlplane.core.audit.entries import Actor
from controlplane.core.permissions import Action
from controlplane.core.queries import rows
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors_requests import id_floor
from controlplane.tenants.access import require

SINCE = timedelta(days=1)
LINES_MAX = 20_000
HEALTH_MS_MAX = 1_500
# A charge is timely when it is booked so soon after its request ended.
TIMELY_S = 60

_HOLDS = """
    SELECT count(*), coalesce(sum(amount), 0)::bigint, count(*) FILTER (WHERE expires_at < %(now)s)
    FROM open_holds WHERE organization = %(organization)s
"""
# A charge is booked before its answer ends, so the lag of all but late ones is below zero: 0.
_LINES = """
    WITH lines AS (
        SELECT request, kind, amount, source, booked_at FROM transfers
        WHERE organization = %(organization)s AND request >= %(floor)s AND slot > 0
        ORDER BY request DESC LIMIT %(most)s
    ), lags AS (
        SELECT greatest(0, extract(epoch FROM l.booked_at - r.started_at) * 1000000 - r.total_us)
                   AS lag_us
        FROM lines l JOIN request_records r USING (request)
        WHERE l.kind IN ('settle', 'late') AND r.request >= %(floor)s
    )
    SELECT count(*), count(*) FILTER (WHERE kind = 'expire'),
           coalesce(sum(amount) FILTER (WHERE kind = 'expire'), 0)::bigint,
           count(*) FILTER (WHERE posts), count(*) FILTER (WHERE posts AND source = 'estimate'),
           coalesce(sum(amount) FILTER (WHERE posts), 0)::bigint,
           coalesce(sum(amount) FILTER (WHERE posts AND source = 'estimate'), 0)::bigint,
           (SELECT count(*) FROM lags),
           (SELECT percentile_disc(0.95) WITHIN GROUP (ORDER BY lag_us) FROM lags)::bigint,
           (SELECT count(*) FROM lags WHERE lag_us > %(timely_us)s)
    FROM (SELECT *, kind IN ('settle', 'overage', 'late') AS posts FROM lines) AS l
"""


@dataclass(frozen=True)
class LedgerHealth:
    """Counts and nano-USD; lags in microseconds from a request's end to its booking.

    `lines` are those looked at, all of the last day unless they are as many as `LINES_MAX`.
    """

    open_holds: int
    open_nano: int
    overdue: int
    lines: int
    expired: int
    expired_nano: int
    charges: int
    estimated: int
    charged_nano: int
    estimated_nano: int
    lags: int
    lag_p95_us: int | None
    untimely: int
    reconciliation: Reconciliation | None

    @property
    def complete(self) -> bool:
        """Whether every line of the last day was looked at."""
        return self.lines < LINES_MAX


def ledger_health(*, actor: Actor, organization: uuid.UUID, now: datetime) -> LedgerHealth:
    """The ledger of one organization over the last day; raises TooMuchToRead."""
    require(actor, Action.LEDGER_VIEW, organization)
    values: dict[str, Any] = {
        "organization": organization,
        "now": now,
        "floor": id_floor(now - SINCE),
        "most": LINES_MAX,
        "timely_us": TIMELY_S * 1_000_000,
    }
    with bounded_read([organization], HEALTH_MS_MAX):
        (holds,), (lines,) = rows(_HOLDS, values), rows(_LINES, values)
        last = Reconciliation.objects.filter(organization=organization).first()
    names = [field.name for field in fields(LedgerHealth)]
    return LedgerHealth(**dict(zip(names, (*holds, *lines, last), strict=True)))
