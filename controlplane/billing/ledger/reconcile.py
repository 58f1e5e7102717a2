"""Reconciliation: requests, ledger, nodes' reports and roll-ups of an organization, held together.

What one side has and another lacks, and nothing explains, is `unaccounted`: always zero. A request
of which no report ever came, and a charge whose record was lost with a gateway, are told as well,
but explain themselves: the first by its expired hold, the second by the node's own count.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from controlplane.billing.ledger.models import LedgerHour, Reconciliation
from controlplane.billing.ledger.services import BOOKED_DAYS_MAX, windows
from controlplane.core.audit.entries import OPERATOR
from controlplane.core.jobs.each import each_alone
from controlplane.core.models import uuid7
from controlplane.core.permissions import organization_scope
from controlplane.core.queries import rows, value
from controlplane.kernel.ids import public_id, uuid_of
from controlplane.tenants.selectors import organization_ids

EXAMPLES_PER_KIND_MAX = 20
HOUR = timedelta(hours=1)
# A request may still be in progress, or its node's report on its way, for this long.
GRACE = timedelta(hours=1)
HOURS_PER_RUN_MAX = 48
EXPLAINED = frozenset({"unrecorded", "lost_report"})

# Requests of a window by their ids: what was recorded beside what was booked.
_REQUESTS = """
    WITH booked AS (
        SELECT request, sum(amount) FILTER (WHERE posts) AS nano,
               sum(uncached + cached) FILTER (WHERE posts) AS prompt,
               sum(output) FILTER (WHERE posts) AS output,
               max(amount) FILTER (WHERE slot = 0) AS held,
               max(kind) FILTER (WHERE slot = 1) AS finish,
               bool_or(posts) AS charged
        FROM (SELECT *, kind IN ('settle', 'overage', 'late') AS posts FROM transfers
              WHERE request >= request_floor(%(opens)s) AND request < request_floor(%(closes)s)
                AND organization = %(organization)s) AS t
        GROUP BY request
    ), recorded AS (
        SELECT request, cost_nano, prompt_tokens, output_tokens FROM request_records
        WHERE request >= request_floor(%(opens)s) AND request < request_floor(%(closes)s)
          AND organization = %(organization)s
    ), held AS (
        SELECT request FROM open_holds WHERE organization = %(organization)s
    )
    SELECT CASE
               WHEN b.finish IS NULL AND b.charged IS NOT TRUE AND r.cost_nano > 0 THEN 'unbilled'
               WHEN b.finish = 'release' AND r.cost_nano > 0 THEN 'unbilled'
               WHEN b.finish = 'expire' AND NOT b.charged THEN 'lost_report'
               WHEN b.charged AND r.request IS NULL THEN 'unrecorded'
               WHEN b.charged AND b.nano <> r.cost_nano THEN 'unequal'
               WHEN b.charged AND (r.prompt_tokens > b.prompt OR r.output_tokens > b.output)
                   THEN 'unequal'
               WHEN h.request IS NULL AND b.held IS NOT NULL AND b.finish IS NULL THEN 'unresolved'
           END AS kind,
           request::text,
           CASE WHEN b.charged AND r.request IS NOT NULL
                THEN abs(b.prompt - r.prompt_tokens) + abs(b.output - r.output_tokens)
                WHEN b.charged THEN b.prompt + b.output
                ELSE coalesce(r.prompt_tokens + r.output_tokens, 0) END::bigint,
           CASE WHEN b.charged AND r.request IS NOT NULL THEN abs(b.nano - r.cost_nano)
                WHEN b.charged THEN b.nano
                ELSE greatest(coalesce(r.cost_nano, 0),
                              CASE WHEN b.finish = 'expire' THEN b.held ELSE 0 END) END::bigint
    FROM booked b FULL JOIN recorded r USING (request) LEFT JOIN held h USING (request)
    WHERE h.request IS NULL
"""
# The kept hours against the lines booked in them, as far as they are sealed.
_HOURS = """
    WITH sealed AS (SELECT coalesce(max(to_at), '-infinity') AS at FROM ledger_seals),
    kept AS (
        SELECT hour, sum(nano) AS nano, sum(uncached + cached + output) AS tokens
        FROM ledger_hours
        WHERE organization = %(organization)s AND hour >= %(opens)s AND hour < %(closes)s
        GROUP BY hour
    ), booked AS (
        SELECT date_trunc('hour', booked_at, 'UTC') AS hour, sum(amount) AS nano,
               sum(uncached + cached + output) AS tokens
        FROM transfers, sealed
        WHERE organization = %(organization)s AND kind IN ('settle', 'overage', 'late')
          AND request >= request_floor(%(first)s) AND request < request_floor(%(last)s)
          AND booked_at >= %(opens)s AND booked_at < %(closes)s AND booked_at < sealed.at
        GROUP BY 1
    )
    SELECT hour, coalesce(k.tokens, 0) - coalesce(b.tokens, 0),
           coalesce(k.nano, 0) - coalesce(b.nano, 0)
    FROM kept k FULL JOIN booked b USING (hour)
    WHERE (k.tokens, k.nano) IS DISTINCT FROM (b.tokens, b.nano) ORDER BY hour
"""
# What roll-ups claim beyond the ledger, by model; an hour to either side lets borders be crossed.
_ROLLUPS = """
    SELECT u.model, u.tokens - coalesce(k.tokens, 0) - coalesce(x.tokens, 0),
           u.nano - coalesce(k.nano, 0) - coalesce(x.nano, 0)
    FROM (SELECT model, sum(uncached + cached + output) AS tokens, sum(nano) AS nano
          FROM usage_rollups WHERE step_s = 3600 AND organization = %(organization)s
            AND at >= %(begins)s AND at < %(ends)s AND nano > 0 GROUP BY model) AS u
    LEFT JOIN (SELECT model, sum(uncached + cached + output) AS tokens, sum(nano) AS nano
               FROM ledger_hours WHERE organization = %(organization)s
                 AND hour >= %(begins)s - interval '1 hour'
                 AND hour < %(ends)s + interval '1 hour' GROUP BY model) AS k
        ON k.model = u.model
    LEFT JOIN (SELECT r.model, sum(r.prompt_tokens + r.output_tokens) AS tokens,
                      sum(r.cost_nano) AS nano
               FROM request_records r WHERE r.request::text = ANY (%(lost)s) GROUP BY r.model) AS x
        ON x.model = u.model
    WHERE u.nano > coalesce(k.nano, 0) + coalesce(x.nano, 0)
"""
_COUNT = """
    SELECT count(DISTINCT request) FROM transfers
    WHERE request >= request_floor(%(opens)s) AND request < request_floor(%(closes)s)
      AND organization = %(organization)s
"""


@dataclass(frozen=True)
class Mismatch:
    """One difference; `subject` is a request, an hour or a model."""

    kind: str
    subject: str
    tokens: int
    nano: int

    @property
    def seen(self) -> str:
        """The subject as people see it."""
        if self.kind in ("hour_differs", "rollup_exceeds"):
            return self.subject
        return public_id("req", uuid_of(self.subject))


def reconcile_requests(
    organization: UUID,
    begins: datetime,
    ends: datetime,
    compared: Callable[[], None] = lambda: None,
) -> Reconciliation:
    """Compare everything of [begins, ends), both on whole hours; keeps and returns what was found.

    Window by window, each in a short transaction; `compared` is called after each.
    """
    found: list[Mismatch] = []
    requests = 0
    for opens, closes in windows(organization, begins, ends):
        count, differences = _compare(organization, opens, closes)
        requests += count
        found += differences
        compared()
    found += _rollups(organization, begins, ends, found)
    real = [one for one in found if one.kind not in EXPLAINED]
    made = Reconciliation(
        id=uuid7(),
        organization=organization,
        begins=begins,
        ends=ends,
        made_at=datetime.now(UTC),
        requests=requests,
        findings=len(real),
        unaccounted_tokens=sum(one.tokens for one in real),
        unaccounted_nano=sum(one.nano for one in real),
        examples=list(_examples(found)),
    )
    with organization_scope([organization]):
        made.save(force_insert=True)
    return made


def reconcile_lately() -> list[Reconciliation]:
    """What organizations did since they were last compared, up to an hour ago; the job's work."""
    ends = (datetime.now(UTC) - GRACE).replace(minute=0, second=0, microsecond=0)
    earliest = ends - HOURS_PER_RUN_MAX * HOUR
    organizations = organization_ids(user=OPERATOR)
    with organization_scope(organizations):
        lately = LedgerHour.objects.filter(hour__gte=earliest, hour__lt=ends)
        active = sorted(set(lately.values_list("organization", flat=True)))
        compared = {
            one: Reconciliation.objects.filter(organization=one, ends__lte=ends).first()
            for one in active
        }
    due = [
        (organization, begins)
        for organization, last in compared.items()
        if (begins := max(earliest, last.ends) if last else earliest) < ends
    ]
    return each_alone("reconcile_lately", due, lambda one: reconcile_requests(*one, ends))


def _compare(organization: UUID, opens: datetime, closes: datetime) -> tuple[int, list[Mismatch]]:
    values = {
        "organization": organization,
        "opens": opens,
        "closes": closes,
        "first": opens - timedelta(days=BOOKED_DAYS_MAX),
        "last": closes + timedelta(minutes=1),
    }
    with organization_scope([organization]):
        count = value(_COUNT, values)
        found = [Mismatch(*row) for row in rows(_REQUESTS, values) if row[0] is not None]
        for hour, tokens, nano in rows(_HOURS, values):
            told = f"{hour:%Y-%m-%dT%H:%MZ}"
            found.append(Mismatch("hour_differs", told, abs(int(tokens)), abs(int(nano))))
    return count, found


def _rollups(
    organization: UUID, begins: datetime, ends: datetime, found: list[Mismatch]
) -> list[Mismatch]:
    # What is told as unbilled or lost already is no second finding.
    lost = [one.subject for one in found if one.kind in ("unbilled", "lost_report")]
    values = {"organization": organization, "begins": begins, "ends": ends, "lost": lost}
    with organization_scope([organization]):
        exceeding = rows(_ROLLUPS, values)
    return [
        Mismatch("rollup_exceeds", model, max(0, int(tokens)), int(nano))
        for model, tokens, nano in exceeding
    ]


def _examples(found: list[Mismatch]) -> Iterator[dict[str, Any]]:
    """The first of each kind, and how many there are of it."""
    kinds: dict[str, list[Mismatch]] = {}
    for one in found:
        kinds.setdefault(one.kind, []).append(one)
    for kind, all_of_it in sorted(kinds.items()):
        yield {
            "kind": kind,
            "count": len(all_of_it),
            "explained": kind in EXPLAINED,
            "tokens": sum(one.tokens for one in all_of_it),
            "nano": sum(one.nano for one in all_of_it),
            "first": [
                {"subject": one.seen, "tokens": one.tokens, "nano": one.nano}
                for one in all_of_it[:EXAMPLES_PER_KIND_MAX]
            ],
        }
