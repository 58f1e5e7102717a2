"""Usage of all tenants together, of pools, and what single keys touched."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count, F, Max, Min, Sum

from controlplane.kernel.histogram import Histogram
from controlplane.telemetry.models import HistogramRollup, RequestRecord
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors import EVERYONE, WHOLE, SeriesQuery, UsageSum, usage_sums
from controlplane.telemetry.selectors_requests import FAILED, id_floor
from controlplane.telemetry.tiers import DAY_S, HOUR_S, TierRange


def usage_by_model(
    organizations: Iterable[UUID], *, start: datetime, end: datetime
) -> dict[str, UsageSum]:
    """Sums of [start, end) of these organizations; raises TooMuchToRead."""
    ids = list(organizations)
    span = TierRange(HOUR_S, start, end)
    found = usage_sums(ids, span, {"organization__in": ids}, "model")
    return {model: usage for (model,), usage in found.items()}


def usage_by_pool(
    organizations: Iterable[UUID], *, start: datetime, end: datetime
) -> dict[tuple[UUID, str], dict[str, UsageSum]]:
    """Sums of [start, end) by organization and model, in each pool that served; requests that no
    pool served are left out. Raises TooMuchToRead.
    """
    ids = list(organizations)
    wanted = {"organization__in": ids, "pool__gt": ""}
    span = TierRange(HOUR_S, start, end)
    found: dict[tuple[UUID, str], dict[str, UsageSum]] = {}
    sums = usage_sums(ids, span, wanted, "organization", "model", "pool")
    for (organization, model, pool), usage in sums.items():
        found.setdefault((organization, model), {})[pool] = usage
    return found


def cache_by_organization(query: SeriesQuery, organizations: Iterable[UUID]) -> dict[str, UsageSum]:
    """The same of `query`'s range, model and project by each of these organizations.

    Ids come as text with hyphens. `query.organization` is not looked at: who asks has the right to
    all of them. Raises TooMuchToRead.
    """
    ids = list(organizations)
    wanted = {**query.narrowed_usage, "organization__in": ids}
    del wanted["organization"]
    found = usage_sums(ids, query.span, wanted, "organization")
    return {str(organization): usage for (organization,), usage in found.items()}


PREFILL, DECODE = "prefill", "decode"
READ_MS_MAX = 3_000


class PoolWork(NamedTuple):
    """Microseconds that requests spent in each phase; those of a batch count for each of it."""

    prefill_us: int = 0
    decode_us: int = 0


def model_work(*, start: datetime, end: datetime) -> dict[str, PoolWork]:
    """By model, of [start, end): from daily series, or from hourly ones before a day has passed.

    Raises TooMuchToRead.
    """
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    with bounded_read([], READ_MS_MAX):
        for step_s in (DAY_S, HOUR_S):
            rows = HistogramRollup.objects.filter(
                step_s=step_s,
                at__gte=start,
                at__lt=end,
                organization=EVERYONE,
                project=EVERYONE,
                dimension=WHOLE,
                measure__in=(PREFILL, DECODE),
            ).exclude(model="")
            for model, measure, data in rows.values_list("model", "measure", "data").iterator():
                found[model][measure] += Histogram.from_bytes(data).total
            if found:
                break
    return {model: PoolWork(sums[PREFILL], sums[DECODE]) for model, sums in found.items()}


KEY_READ_MS_MAX = 2_000


@dataclass(frozen=True)
class KeyTouch:
    """Requests of one model; `failed` of them were answered with an error."""

    model: str
    requests: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    first: datetime
    last: datetime


def key_touches(*, organization: UUID, keys: Iterable[UUID], since: datetime) -> list[KeyTouch]:
    """By model, most used first; raises TooMuchToRead rather than holding a page up."""
    with bounded_read([organization], KEY_READ_MS_MAX):
        rows = (
            RequestRecord.objects.filter(
                organization=organization, key__in=list(keys), request__gte=id_floor(since)
            )
            .order_by()
            .values("model")
            .annotate(
                requests=Count("request"),
                failed=Count("request", filter=FAILED),
                prompt_tokens=Sum("prompt_tokens"),
                output_tokens=Sum("output_tokens"),
                first=Min("started_at"),
                last=Max("started_at"),
            )
            .order_by(F("requests").desc(), "model")
        )
        return [KeyTouch(**row) for row in rows]


def key_last_begun(*, organization: UUID, key: UUID, after: datetime) -> datetime | None:
    """When the last request that a gateway took of this key after a moment began; None for none.

    A request with a key that is refused as such is recorded nowhere.
    """
    with bounded_read([organization], KEY_READ_MS_MAX):
        rows = RequestRecord.objects.filter(
            organization=organization, key=key, request__gte=id_floor(after), started_at__gt=after
        )
        last: datetime | None = rows.order_by().aggregate(last=Max("started_at"))["last"]
        return last
