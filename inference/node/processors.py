"""How busy the machine's processors are, whoever uses them: Linux says, elsewhere it is unknown."""

import time
from pathlib import Path

STAT = Path("/proc/stat")
# Over less time the ticks of 10 ms say little: then the share before is told again.
APART_S_MIN = 1.0
PERMILLE = 1_000


class Processors:
    """Compares each look with the one before."""

    def __init__(self, stat: Path = STAT) -> None:
        self._stat = stat
        self._seen = _ticks(stat)
        self._seen_s = time.monotonic()
        self._busy: int | None = None

    def busy_permille(self) -> int | None:
        """The share of all processors' time that was not idle since the look before."""
        now_s = time.monotonic()
        if now_s - self._seen_s >= APART_S_MIN:
            before, self._seen, self._seen_s = self._seen, _ticks(self._stat), now_s
            self._busy = _share(before, self._seen)
        return self._busy


def _ticks(stat: Path) -> tuple[int, int] | None:
    """Idle and all ticks since the machine began: idle and waiting for I/O are the 4th and 5th."""
    try:
        with stat.open(encoding="ascii") as file:
            ticks = [int(text) for text in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return (sum(ticks[3:5]), sum(ticks)) if len(ticks) > 3 else None


def _share(before: tuple[int, int] | None, now: tuple[int, int] | None) -> int | None:
    if before is None or now is None or now[1] <= before[1]:
        return None
    idle = min(max(now[0] - before[0], 0), now[1] - before[1])
    return PERMILLE - PERMILLE * idle // (now[1] - before[1])
