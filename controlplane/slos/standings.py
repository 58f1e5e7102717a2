"""How objectives stand: what was counted in each window until now, and what follows from it.

One statement reads all windows of all objectives: minutes of the last two hours, before them steps
of five minutes, and hours before three days.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from controlplane.core.queries import rows
from controlplane.kernel.objectives.burn import (
    ABSENT,
    MILLION,
    PAGE,
    WINDOWS_MIN,
    Count,
    burn_rate,
    exhausted_in_s,
    remaining,
)
from controlplane.slos.models import Alert, Objective, Shed

MINUTE = timedelta(minutes=1)
MINUTES_BACK = timedelta(hours=2)
FIVES_BACK = timedelta(days=3)
STEP_MIN, STEP_FIVE, STEP_HOUR, STEP_DAY = 60, 300, 3_600, 86_400
SHOWN_MIN = (5, 60, 360, 4_320)
# Steady enough to foresee by, and quick enough to notice.
FORESEE_MIN = 360
FIRING, RECOVERED = "firing", "recovered"
# Windows that minutes alone reach, and those that go on into steps of five minutes.
_NEAR = tuple(minutes for minutes in WINDOWS_MIN if minutes <= MINUTES_BACK // MINUTE)
_FAR = tuple(minutes for minutes in WINDOWS_MIN if minutes not in _NEAR)


def _sums(windows: Sequence[int]) -> str:
    """Good and total of each window, then of all rows, and when the last was."""
    parts = [
        f"coalesce(sum({column}) FILTER (WHERE at >= %(end)s - interval '{minutes} minutes'), 0)"
        for minutes in windows
        for column in ("good", "total")
    ]
    return ", ".join([*parts, "coalesce(sum(good), 0)", "coalesce(sum(total), 0)", "max(at)"])


# Each step by itself, so that each is one range of the primary key.
_SQL = f"""
SELECT o.id, m.*, f.*, h.* FROM slo_objectives o
CROSS JOIN LATERAL (
    SELECT {_sums(_NEAR)} FROM slo_counts WHERE objective = o.id AND version = o.version
    AND step_s = {STEP_MIN} AND at >= %(minutes)s AND at < %(end)s) m
CROSS JOIN LATERAL (
    SELECT {_sums(_FAR)} FROM slo_counts WHERE objective = o.id AND version = o.version
    AND step_s = {STEP_FIVE} AND at >= %(fives)s AND at < %(minutes)s) f
CROSS JOIN LATERAL (
    SELECT {_sums(())} FROM slo_counts WHERE objective = o.id AND version = o.version
    AND step_s = {STEP_HOUR} AND at >= %(end)s - o.period_days * interval '1 day'
    AND at < %(fives)s) h
WHERE o.organization = ANY (%(organizations)s::uuid[]) AND o.ended_at IS NULL
"""


@dataclass(frozen=True)
class ObjectiveStatus:
    """One objective now: its counts by window, over its period, and the alerts that fire.

    `shed` is its newest, in force or over.
    """

    objective: Objective
    windows: dict[int, Count]
    period: Count
    counted_at: datetime | None
    alerts: tuple[Alert, ...]
    shed: Shed | None = None

    @property
    def shedding(self) -> Shed | None:
        shed, objective = self.shed, self.objective
        if shed is None or objective.shed_priority is None or not objective.enabled:
            return None
        return shed if shed.released_at is None and shed.until > timezone.now() else None

    @property
    def attained(self) -> float | None:
        """The share of good requests in the period; None without any."""
        return self.period.good / self.period.total if self.period.total else None

    @property
    def target(self) -> float:
        return self.objective.target_ppm / MILLION

    @property
    def left(self) -> float | None:
        """The share of the error budget that is left, below 0 where it is overspent."""
        return remaining(self.period, self.objective.target_ppm)

    def burn(self, minutes: int) -> float | None:
        return burn_rate(self.window(minutes), self.objective.target_ppm)

    def window(self, minutes: int) -> Count:
        """What was counted in the last minutes, of the windows that rules have."""
        return self.windows.get(minutes, Count())

    @property
    def exhausted_in_s(self) -> float | None:
        """Seconds until nothing is left if it continues as in the last six hours."""
        days = self.objective.period_days
        return exhausted_in_s(self.left, self.burn(FORESEE_MIN), days)

    @property
    def state(self) -> str:
        """The worst alert that fires, or `paused`, `no data`, `spent` or `ok`."""
        if not self.objective.enabled:
            return "paused"
        severities = [alert.severity for alert in self.alerts]
        for severity in (PAGE, "ticket", ABSENT):
            if severity in severities:
                return severity
        if self.left is None:
            return "no data"
        return "ok" if self.left > 0 else "spent"


def standings(organizations: Sequence[uuid.UUID], now: datetime) -> list[ObjectiveStatus]:
    """How the living objectives of these stand, by name; needs their scope."""
    living = Objective.objects.filter(organization__in=organizations, ended_at=None)
    counted = _counted(organizations, now)
    firing: dict[uuid.UUID, list[Alert]] = {}
    for alert in Alert.objects.filter(organization__in=organizations, state=FIRING):
        firing.setdefault(alert.objective_id, []).append(alert)
    newest = Shed.objects.filter(objective__in=living).order_by("objective_id", "-since", "-id")
    sheds = {one.objective_id: one for one in newest.distinct("objective_id")}
    return [
        ObjectiveStatus(
            objective,
            *counted.get(objective.id, ({}, Count(), None)),
            alerts=tuple(firing.get(objective.id, ())),
            shed=sheds.get(objective.id),
        )
        for objective in living.order_by("organization", "name")
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
        "organizations": list(organizations),
    }
    return {row[0]: _read(row) for row in rows(_SQL, values)}


def _read(row: Sequence[Any]) -> tuple[dict[int, Count], Count, datetime | None]:
    near, minutes, minute_at, rest = _part(row[1:], _NEAR)
    far, fives, five_at, rest = _part(rest, _FAR)
    _, hours, hour_at, _ = _part(rest, ())
    windows = near | {window: _add(minutes, count) for window, count in far.items()}
    return windows, _add(minutes, fives, hours), minute_at or five_at or hour_at


def _part(
    row: Sequence[Any], windows: Sequence[int]
) -> tuple[dict[int, Count], Count, datetime | None, Sequence[Any]]:
    """One step's windows, its sum, its last time, and the columns behind them."""
    size = 2 * len(windows) + 2
    pairs = [Count(int(row[at]), int(row[at + 1])) for at in range(0, size, 2)]
    return dict(zip(windows, pairs, strict=False)), pairs[-1], row[size], row[size + 1 :]


def _add(*counts: Count) -> Count:
    return Count(sum(one.good for one in counts), sum(one.total for one in counts))


def floor(moment: datetime, step_s: int) -> datetime:
    """The beginning of the step that holds the moment."""
    return datetime.fromtimestamp(moment.timestamp() // step_s * step_s, UTC)
