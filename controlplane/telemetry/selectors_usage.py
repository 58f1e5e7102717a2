"""Usage of all tenants together, for whoever runs the installation."""

import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.db.models import QuerySet, Sum

from controlplane.telemetry.models import UsageMinute, UsageRollup
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors import FIGURES, SeriesQuery, UsageSum
from controlplane.telemetry.tiers import HOUR_S, MINUTE_S, TierRange, parts_merged


def usage_by_model(
    organizations: Iterable[uuid.UUID], *, start: datetime, end: datetime
) -> dict[str, UsageSum]:
    """Sums of [start, end) of these organizations; raises TooMuchToRead."""
    wanted = list(organizations)
    found: dict[str, UsageSum] = {}
    with bounded_read(wanted):
        for part in parts_merged(start, end, HOUR_S):
            for (model,), usage in _sums(part, {"organization__in": wanted}, "model"):
                found.setdefault(model, UsageSum()).add(usage)
    return found


def usage_by_pool(
    organizations: Iterable[uuid.UUID], *, start: datetime, end: datetime
) -> dict[tuple[uuid.UUID, str], dict[str, UsageSum]]:
    """Sums of [start, end) by organization and model, in each pool that served; requests that no
    pool served are left out. Raises TooMuchToRead.
    """
    ids = list(organizations)
    wanted = {"organization__in": ids, "pool__gt": ""}
    found: dict[tuple[uuid.UUID, str], dict[str, UsageSum]] = {}
    with bounded_read(ids):
        for part in parts_merged(start, end, HOUR_S):
            for group, usage in _sums(part, wanted, "organization", "model", "pool"):
                organization, model, pool = group
                pools = found.setdefault((organization, model), {})
                pools.setdefault(pool, UsageSum()).add(usage)
    return found


def cache_by_organization(
    query: SeriesQuery, organizations: Iterable[uuid.UUID]
) -> dict[str, UsageSum]:
    """The same of `query`'s range, model and project by each of these organizations.

    Ids come as text with hyphens. `query.organization` is not looked at: who asks has the right to
    all of them. Raises TooMuchToRead.
    """
    ids = list(organizations)
    wanted = {**query.narrowed_usage, "organization__in": ids}
    del wanted["organization"]
    found: dict[str, UsageSum] = {}
    with bounded_read(ids):
        for part in parts_merged(query.start, query.end, query.step_s):
            for (organization,), usage in _sums(part, wanted, "organization"):
                found.setdefault(str(organization), UsageSum()).add(usage)
    return found


def _sums(
    part: TierRange, wanted: dict[str, Any], *columns: str
) -> Iterator[tuple[tuple[Any, ...], UsageSum]]:
    rows: QuerySet[Any]
    if part.step_s == MINUTE_S:
        rows = UsageMinute.objects.filter(minute__gte=part.start, minute__lt=part.end)
    else:
        rows = UsageRollup.objects.filter(step_s=part.step_s, at__gte=part.start, at__lt=part.end)
    grouped = rows.filter(**wanted).order_by().values_list(*columns)
    for row in grouped.annotate(*map(Sum, FIGURES)):
        # PostgreSQL sums bigint to numeric.
        yield row[: len(columns)], UsageSum(*map(int, row[len(columns) :]))
