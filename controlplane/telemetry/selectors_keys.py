"""What keys were used for, from the recorded requests of the days that are kept."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, F, Max, Min, Sum

from controlplane.telemetry.models import RequestRecord
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors_requests import FAILED, id_floor

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


def key_touches(
    *, organization: uuid.UUID, keys: Iterable[uuid.UUID], since: datetime
) -> list[KeyTouch]:
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


def key_last_begun(*, organization: uuid.UUID, key: uuid.UUID, after: datetime) -> datetime | None:
    """When the last request that a gateway took of this key after a moment began; None for none.

    A request with a key that is refused as such is recorded nowhere.
    """
    with bounded_read([organization], KEY_READ_MS_MAX):
        rows = RequestRecord.objects.filter(
            organization=organization, key=key, request__gte=id_floor(after), started_at__gt=after
        )
        last: datetime | None = rows.order_by().aggregate(last=Max("started_at"))["last"]
        return last
