"""How long models worked, summed over all requests of all tenants, from the series of phases."""

from collections import defaultdict
from datetime import datetime
from typing import NamedTuple

from controlplane.kernel.histogram import Histogram
from controlplane.telemetry.models import HistogramRollup
from controlplane.telemetry.reading import bounded_read
from controlplane.telemetry.selectors import EVERYONE, WHOLE
from controlplane.telemetry.tiers import DAY_S, HOUR_S

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
