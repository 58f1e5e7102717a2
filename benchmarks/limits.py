"""Limits that a measurement does not run into: counted for every request, reached by none."""

from __future__ import annotations

from controlplane.blueprint.demo import ADMIN_EMAIL
from controlplane.core.audit import OPERATOR
from controlplane.quotas.models import PER_MINUTE_MAX
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.models import User
from controlplane.tenants.selectors import apikey_list


def raise_limits() -> None:
    """Give every key of the demo the highest limits there are."""
    for key in apikey_list(user=User.objects.get(email=ADMIN_EMAIL)):
        rate_limit_set(
            actor=OPERATOR,
            subject=key,
            requests_per_min=PER_MINUTE_MAX,
            tokens_per_min=PER_MINUTE_MAX,
        )
