"""What a measurement needs to know of the product: limits that none reaches, and what worked."""

from __future__ import annotations

from benchmarks.stack import AUTH_ONLY, WITH_HOLD, WITH_LIMITS
from controlplane.composed.demo import ADMIN_EMAIL
from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.spans import ABSENT, SPANS, unpack_spans
from controlplane.quotas.models import PER_MINUTE_MAX
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import CreatedKey, apikey_create
from controlplane.tenants.models import ApiKey, Project, User
from controlplane.tenants.selectors import apikey_list, project_list, project_named
from controlplane.tenants.services import organization_create
from tests.support.money import rows

UNLIMITED_NAME = "Unlimited"
TABLES = ("transfers", "request_records", "histogram_minutes", "usage_minutes")


def raise_limits() -> None:
    """Give every key of the demo the highest limits there are."""
    for key in apikey_list(user=User.objects.get(email=ADMIN_EMAIL)):
        _limit(key)


def feature_keys() -> dict[str, str]:
    """Secrets of new keys, by what a request of each needs beside the check of its key: nothing,
    rate limits, or room in a budget. The demo's own key needs both.
    """
    admin = User.objects.get(email=ADMIN_EMAIL)
    (budgeted,) = project_list(user=admin)
    unlimited = organization_create(
        actor=OPERATOR, name=UNLIMITED_NAME, owner=admin, project=budgeted.name
    )
    free = project_named(unlimited, name=budgeted.name)
    assert free is not None
    made = {
        AUTH_ONLY: _key(free, AUTH_ONLY),
        WITH_LIMITS: _key(free, WITH_LIMITS),
        WITH_HOLD: _key(budgeted, WITH_HOLD),
    }
    _limit(made[WITH_LIMITS].key)
    return {name: created.secret for name, created in made.items()}


def _key(project: Project, label: str) -> CreatedKey:
    return apikey_create(actor=OPERATOR, project=project, label=label)


def _limit(key: ApiKey) -> None:
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
