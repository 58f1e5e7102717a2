"""The ledger's health for Prometheus, of the whole installation and of no tenant in particular."""

from controlplane.core.audit.entries import OPERATOR
from controlplane.core.queries import rows
from controlplane.telemetry.exposition import Exposition
from controlplane.telemetry.reading import bounded_read
from controlplane.tenants.selectors import organization_ids

READ_MS_MAX = 2_000
_HOLDS = """
    SELECT count(*), coalesce(sum(amount), 0)::bigint,
           count(*) FILTER (WHERE expires_at < now()),
           coalesce(extract(epoch FROM now() - min(expires_at) FILTER (WHERE expires_at < now())),
                    0)::float
    FROM open_holds
"""
_RECONCILED = """
    SELECT coalesce(sum(unaccounted_nano), 0)::bigint,
           extract(epoch FROM now() - min(ends))::float
    FROM (SELECT DISTINCT ON (organization) unaccounted_nano, ends
          FROM reconciliations ORDER BY organization, ends DESC) AS newest
"""


def write_ledger(page: Exposition) -> None:
    """Read the ledger's health; raises TooMuchToRead rather than read for long."""
    with bounded_read(organization_ids(user=OPERATOR), READ_MS_MAX):
        ((holds, nano, overdue, overdue_s),) = rows(_HOLDS)
        ((unaccounted, reconciled_s),) = rows(_RECONCILED)
    for name, text, value in (
        ("sluice_open_holds", "Holds of requests under way", holds),
        ("sluice_open_holds_nano_usd", "What they reserve, in billionths of a dollar", nano),
        ("sluice_overdue_holds", "Holds that should have expired by now", overdue),
        ("sluice_overdue_holds_seconds", "How long the oldest of them is overdue", overdue_s),
        (
            "sluice_reconciliation_unaccounted_nano_usd",
            "Money that the newest reconciliations could not explain",
            unaccounted,
        ),
    ):
        page.one(name, "gauge", text, value)
    if reconciled_s is not None:
        page.one(
            "sluice_reconciliation_age_seconds",
            "gauge",
            "How far back the least reconciled organization is",
            reconciled_s,
        )
