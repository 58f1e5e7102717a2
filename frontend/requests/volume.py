"""Bars of the request volume above the list, placed by the server in per cent. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.telemetry.selectors_requests import Volume
from frontend.shared.ranges import TimeRange

HUNDRED = 100.0
GAP = 0.15


@dataclass(frozen=True)
class VolumeBar:
    """One step: failed requests stand on top of the others."""

    left: float
    width: float
    ok_top: float
    ok_height: float
    failed_top: float
    failed_height: float
    title: str


@dataclass(frozen=True)
class VolumeBars:
    bars: list[VolumeBar]
    requests: int
    failed: int
    gone: int
    most: int
    step_s: int


def volume_bars(rows: Sequence[Volume], within: TimeRange) -> VolumeBars:
    """Bars of a range; steps without requests have none."""
    most = max((row.requests for row in rows), default=0)
    width = HUNDRED * within.step_s / within.seconds
    bars = []
    for row in rows:
        left = HUNDRED * (row.at - within.start).total_seconds() / within.seconds
        failed = HUNDRED * row.failed / most
        ok = HUNDRED * (row.requests - row.failed) / most
        bars.append(
            VolumeBar(
                left=round(left, 3),
                width=round(max(width - 2 * GAP, GAP), 3),
                ok_top=round(HUNDRED - ok, 3),
                ok_height=round(ok, 3),
                failed_top=round(HUNDRED - ok - failed, 3),
                failed_height=round(failed, 3),
                title=f"{row.at:%Y-%m-%d %H:%M} UTC: {row.requests:,} requests, "
                f"{row.failed:,} failed, {row.gone:,} clients left",
            )
        )
    return VolumeBars(
        bars=bars,
        requests=sum(row.requests for row in rows),
        failed=sum(row.failed for row in rows),
        gone=sum(row.gone for row in rows),
        most=most,
        step_s=within.step_s,
    )
