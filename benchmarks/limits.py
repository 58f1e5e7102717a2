"""What a measurement needs to know of the product: limits that none reaches, and what worked."""

from __future__ import annotations

from controlplane.composed.demo import ADMIN_EMAIL
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.spans import ABSENT, SPANS, unpack_spans
from controlplane.quotas.models import PER_MINUTE_MAX
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.models import User
from controlplane.tenants.selectors import apikey_list
from tests.support.money import rows

TABLES = ("transfers", "request_records", "histogram_minutes", "usage_minutes")


def raise_limits() -> None:
    """Give every key of the demo the highest limits there are."""
    for key in apikey_list(user=User.objects.get(email=ADMIN_EMAIL)):
        rate_limit_set(
            actor=OPERATOR,
            subject=key,
            requests_per_min=PER_MINUTE_MAX,
            tokens_per_min=PER_MINUTE_MAX,
        )


def features_seen() -> list[str]:
    """What worked while it was measured: the stages and layers that ran in requests that were
    recorded, and the tables that grew by them.
    """
    seen: set[str] = set()
    for (packed,) in rows("SELECT spans FROM request_records WHERE spans IS NOT NULL LIMIT 500"):
        for span, (start_us, _) in zip(SPANS, unpack_spans(bytes(packed)), strict=False):
            if start_us != ABSENT:
                seen.add(span.name)
    tables = [table for table in TABLES if rows(f"SELECT 1 FROM {table} LIMIT 1")]
    ((fsync,),) = rows("SHOW fsync")
    return [*sorted(seen), *tables, f"fsync {fsync}"]
