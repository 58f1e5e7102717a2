"""How objectives stand: what was counted in each window until now, and what follows from it.

One statement reads all windows of all objectives: minutes of the last six hours, before them steps
of five minutes, and hours before three days.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection

from controlplane.kernel.burn import (
    ABSENT,
    DAY_MIN,
    MILLION,
    PAGE,
    WINDOWS_MIN,
    Count,
    burn_rate,
    exhausted_in_s,
    remaining,
)
from controlplane.slos.models import Alert, Objective

MINUTE = timedelta(minutes=1)
MINUTES_BACK = timedelta(hours=6)
FIVES_BACK = timedelta(days=3)
STEP_MIN, STEP_FIVE, STEP_HOUR = 60, 300, 3_600
SHOWN_MIN = (5, 60, 360, 4_320)
# Steady enough to foresee by, and quick enough to notice.
FORESEE_MIN = 360
FIRING, RECOVERED = "firing", "recovered"
_WINDOWS = ", ".join(
    f"coalesce(sum(c.{column}) FILTER (WHERE c.at >= %(end)s - interval '{minutes} minutes'), 0)"
    for minutes in WINDOWS_MIN
    for column in ("good", "total")
)
_SQL = f"""
SELECT o.id, {_WINDOWS},
       coalesce(sum(c.good) FILTER (WHERE c.at >= %(end)s - o.period_days * interval '1 day'), 0),
       coalesce(sum(c.total) FILTER (WHERE c.at >= %(end)s - o.period_days * interval '1 day'), 0),
       max(c.at)
FROM slo_objectives o
JOIN slo_counts c ON c.objective = o.id AND c.version = o.version AND (
    (c.step_s = 60 AND c.at >= %(minutes)s AND c.at < %(end)s)
    OR (c.step_s = 300 AND c.at >= %(fives)s AND c.at < %(minutes)s)
    OR (c.step_s = 3600 AND c.at >= %(hours)s AND c.at < %(fives)s))
WHERE o.organization = ANY (%(organizations)s::uuid[]) AND o.ended_at IS NULL
GROUP BY o.id
"""


@dataclass(frozen=True)
class Standing:
    """One objective now: its counts by window, over its period, and the alerts that fire."""

    objective: Objective
    windows: dict[int, Count]
    period: Count
    counted_at: datetime | None
    alerts: tuple[Alert, ...]

    @property
    def attained(self) -> float | None:
        """The share of good requests in the period; None without any."""
        return self.period.good / self.period.total if self.period.total else None

    @property
    def target(self) -> float:
        """The share that is promised."""
        return self.objective.target_ppm / MILLION

    @property
    def left(self) -> float | None:
        """The share of the error budget that is left, below 0 where it is overspent."""
        return remaining(self.period, self.objective.target_ppm)

    def burn(self, minutes: int) -> float | None:
        """The burn rate of a window."""
        return burn_rate(self.window(minutes), self.objective.target_ppm)

    def window(self, minutes: int) -> Count:
        """What was counted in the last minutes, of the windows that rules have."""
        return self.windows.get(minutes, Count())

    @property
    def exhausted_in_s(self) -> float | None:
        """Seconds until nothing is left if it goes on as in the last six hours."""
        days = self.objective.period_days
        return exhausted_in_s(self.left, self.burn(FORESEE_MIN), days)

    @property
    def state(self) -> str:
        """The worst alert that fires, or `paused`, `no data` or `ok`."""
        if not self.objective.enabled:
            return "paused"
        severities = [alert.severity for alert in self.alerts]
        for severity in (PAGE, "ticket", ABSENT):
            if severity in severities:
                return severity
        return "ok" if self.period.total else "no data"


def standings(organizations: Sequence[uuid.UUID], now: datetime) -> list[Standing]:
    """How the living objectives of these stand, by name; needs their scope."""
    rows = Objective.objects.filter(organization__in=organizations, ended_at=None)
    counted = _counted(organizations, now)
    firing: dict[uuid.UUID, list[Alert]] = {}
    for alert in Alert.objects.filter(organization__in=organizations, state=FIRING):
        firing.setdefault(alert.objective_id, []).append(alert)
    return [
        Standing(
            objective,
            *counted.get(objective.id, ({}, Count(), None)),
            alerts=tuple(firing.get(objective.id, ())),
        )
        for objective in rows.order_by("organization", "name")
    ]


def _counted(
    organizations: Sequence[uuid.UUID], now: datetime
) -> dict[uuid.UUID, tuple[dict[int, Count], Count, datetime | None]]:
    # The minute that runs is in: what went wrong just now is seen at once.
    end = floor(now, STEP_MIN) + MINUTE
    values: dict[str, Any] = {
        "end": end,
        "minutes": floor(end - MINUTES_BACK, STEP_FIVE),
        "fives": floor(end - FIVES_BACK, STEP_HOUR),
        "hours": end - timedelta(days=30),
        "organizations": list(organizations),
    }
    with connection.cursor() as cursor:
        cursor.execute(_SQL, values)
        return {row[0]: _read(row) for row in cursor.fetchall()}


def _read(row: Sequence[Any]) -> tuple[dict[int, Count], Count, datetime | None]:
    figures = [int(figure) for figure in row[1:-1]]
    pairs = [Count(*figures[at : at + 2]) for at in range(0, len(figures), 2)]
    return dict(zip(WINDOWS_MIN, pairs[:-1], strict=True)), pairs[-1], row[-1]


def floor(moment: datetime, step_s: int) -> datetime:
    """The beginning of the step that holds the moment."""
    return datetime.fromtimestamp(moment.timestamp() // step_s * step_s, UTC)


def days_of(minutes: int) -> float:
    """Windows are told in days where they are that long."""
    return minutes / DAY_MIN
