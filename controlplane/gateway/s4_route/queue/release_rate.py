"""How fast credits come back while requests wait for them, and so how long a wait will be."""

RETURN_WEIGHT = 1 / 32
RETURNS_MIN = 8
RETURNS_AGE_S_MAX = 300.0
SECONDS_MIN = 1e-6


class ReleaseRate:
    """Turns per second: decayed sums over the last few dozen, so that no clock scale is assumed.

    Only time in which somebody waited counts: else it would measure demand, not capacity.
    """

    __slots__ = ("_count", "_last_s", "_samples", "_seconds")

    def __init__(self) -> None:
        self._count = self._seconds = self._last_s = 0.0
        self._samples = 0

    def began(self, now_s: float) -> None:
        """The first request waits; what was measured long ago says nothing any more."""
        if now_s - self._last_s > RETURNS_AGE_S_MAX:
            self._count = self._seconds = 0.0
            self._samples = 0
        self._last_s = now_s

    def returned(self, now_s: float) -> None:
        kept = 1.0 - RETURN_WEIGHT
        self._count = self._count * kept + 1.0
        self._seconds = self._seconds * kept + max(0.0, now_s - self._last_s)
        self._last_s = now_s
        self._samples += 1

    def wait_s(self, turns: int, now_s: float, *, waiting: bool) -> float | None:
        """Seconds until so many turns; None until enough was measured to refuse anyone for it.

        While requests wait, silence since the last turn counts too: a fleet that has stopped
        answering gets slower by the second.
        """
        if self._samples < RETURNS_MIN:
            return None
        silent_s = max(0.0, now_s - self._last_s) if waiting else 0.0
        return turns * max(SECONDS_MIN, self._seconds + silent_s) / self._count
