"""How many nodes of a pool are kept warm, by the clock: windows of the week in their own zone."""

from datetime import datetime, time, timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
NODES_MOST = 1_000
WINDOWS_MAX = 32
ClockTime = Annotated[str, msgspec.Meta(pattern=r"\A([01][0-9]|2[0-3]):[0-5][0-9]\Z")]


class WarmWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """On these days, from one time to another, at least so many nodes.

    A window whose end is not after its start runs past midnight into the next day.
    """

    days: Annotated[tuple[Day, ...], msgspec.Meta(min_length=1, max_length=7)]
    start: ClockTime = msgspec.field(name="from")
    end: ClockTime = msgspec.field(name="to")
    nodes_min: Annotated[int, msgspec.Meta(ge=0, le=NODES_MOST)]
    timezone: str = "UTC"

    def holds(self, now: datetime) -> bool:
        """Whether `now`, an aware time, lies in it."""
        local = now.astimezone(ZoneInfo(self.timezone))
        clock, today = local.time(), DAYS[local.weekday()] in self.days
        start, end = time.fromisoformat(self.start), time.fromisoformat(self.end)
        if start < end:
            return today and start <= clock < end
        yesterday = DAYS[(local - timedelta(days=1)).weekday()] in self.days
        return (today and clock >= start) or (yesterday and clock < end)


def windows_from(stored: object) -> tuple[WarmWindow, ...]:
    """Read a schedule as it is stored; raises ValueError that names what is wrong."""
    windows = msgspec.convert(stored, tuple[WarmWindow, ...])
    if len(windows) > WINDOWS_MAX:
        raise ValueError(f"At most {WINDOWS_MAX} windows.")
    for window in windows:
        try:
            ZoneInfo(window.timezone)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"timezone: unknown time zone {window.timezone!r}.") from None
    return windows


def nodes_min_at(base: int, windows: tuple[WarmWindow, ...], now: datetime) -> int:
    """The most that the base or any window in force asks for."""
    return max([base, *(window.nodes_min for window in windows if window.holds(now))])
