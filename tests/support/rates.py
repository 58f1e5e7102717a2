"""Requests of weeks ago, as roll-ups have them: so many a second, all refused for lack of room, so
that figures of those that ran stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from controlplane.kernel.histogram import Histogram
from controlplane.telemetry.selectors import EVERYONE
from controlplane.telemetry.tiers import ROLLUP_S
from tests.support.money import rows


def seed_rates(model: str, rates: Mapping[int, float], *, step_s: int) -> None:
    """`rates` are by the start of each step, a multiple of five minutes, since the epoch."""
    values: list[tuple[datetime, bytes]] = []
    for start_s, per_s in rates.items():
        for at in range(start_s, start_s + step_s, ROLLUP_S):
            count = round(per_s * ROLLUP_S)
            histogram = Histogram({0: count})
            histogram.total, histogram.maximum = count, 1
            values.append((datetime.fromtimestamp(at, UTC), histogram.to_bytes()))
    rows(
        "INSERT INTO histogram_rollups (organization, project, measure, model, route, pool, region,"
        " prompt_bucket, status_class, data, step_s, at)"
        " SELECT %s, %s, 'shed', %s, '', '', '', -1, -1, data, %s, at"
        " FROM unnest(%s::timestamptz[], %s::bytea[]) AS seed (at, data)",
        EVERYONE, EVERYONE, model, ROLLUP_S,
        [at for at, _ in values], [data for _, data in values],
    )  # fmt: skip
