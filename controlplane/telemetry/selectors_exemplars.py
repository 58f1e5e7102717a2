"""From a percentile to a request that took about as long."""

import uuid

from django.db.models import F
from django.db.models.functions import Abs

from controlplane.telemetry.models import Exemplar
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors import SeriesQuery
from controlplane.telemetry.tiers import ROLLUP_S, step_floor

READ_MS_MAX = 1_000


def exemplar(query: SeriesQuery, measure: str, value_us: float) -> uuid.UUID | None:
    """A request of the query's organization, time, model and project that took about so long.

    `measure` is total, ttft or a stage. The nearest octave counts first, then the nearest value;
    None where no request is known. Raises TooMuchToRead.
    """
    value = round(value_us)
    rows = Exemplar.objects.filter(
        measure=measure,
        at__gte=step_floor(query.start, ROLLUP_S),
        at__lt=query.end,
        **query.narrowed_usage,
    )
    near = (Abs(F("octave") - value.bit_length()), Abs(F("value_us") - value), "-at")
    with bounded_read([query.organization], READ_MS_MAX):
        return rows.order_by(*near).values_list("request", flat=True).first()
