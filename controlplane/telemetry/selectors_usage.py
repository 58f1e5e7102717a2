"""Usage of all tenants together, for whoever runs the installation."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import QuerySet, Sum

from controlplane.telemetry.models import UsageMinute, UsageRollup
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors import FIGURES, UsageSum
from controlplane.telemetry.tiers import HOUR_S, MINUTE_S, parts_merged


def usage_by_model(
    organizations: Iterable[uuid.UUID], *, start: datetime, end: datetime
) -> dict[str, UsageSum]:
    """Sums of [start, end) of these organizations; raises TooMuchToRead."""
    wanted = list(organizations)
    found: dict[str, UsageSum] = {}
    with bounded_read(wanted):
        for part in parts_merged(start, end, HOUR_S):
            rows: QuerySet[Any]
            if part.step_s == MINUTE_S:
                rows = UsageMinute.objects.filter(minute__gte=part.start, minute__lt=part.end)
            else:
                rows = UsageRollup.objects.filter(
                    step_s=part.step_s, at__gte=part.start, at__lt=part.end
                )
            rows = rows.filter(organization__in=wanted).order_by()
            for model, *figures in rows.values_list("model").annotate(*map(Sum, FIGURES)):
                # PostgreSQL sums bigint to numeric.
                found.setdefault(model, UsageSum()).add(UsageSum(*map(int, figures)))
    return found
