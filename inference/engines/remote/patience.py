"""How long one server may be silent, learned from the longest that it lately was: a request in a
hundred may think for minutes, and must not be ended for it.

Each has a floor, for a server that was always quick may pause once, and a ceiling, which also holds
while little is known. What runs into a bound counts as that long, so that a bound which is too
short grows. A long request may take longer to begin with.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType

SAMPLES = 128
KNOWN_MIN = 16
FRESH_FOR = 16
FACTOR = 4.0
# The slowest reading of a prompt that a bound still has time for.
PROMPT_BYTES_PER_S = 2_000


class Patience:
    """One bound of one server."""

    def __init__(self, floor_s: float, ceiling_s: float) -> None:
        self._floor_s = min(floor_s, ceiling_s)
        self._ceiling_s = ceiling_s
        self._waits: deque[float] = deque(maxlen=SAMPLES)
        self._since = 0
        self._bound_s = ceiling_s

    def seconds(self, prompt_bytes: int = 0) -> float:
        """The bound now, for a request of so many bytes."""
        return min(self._bound_s + prompt_bytes / PROMPT_BYTES_PER_S, self._ceiling_s)

    def took(self, seconds: float) -> None:
        self._waits.append(seconds)
        self._since += 1
        if self._since >= FRESH_FOR and len(self._waits) >= KNOWN_MIN:
            self._since = 0
            longest_s = max(self._waits)
            self._bound_s = min(max(FACTOR * longest_s, self._floor_s), self._ceiling_s)


class Silence:
    """Around one answer: tells how long it took to begin, and the longest silence after that, also
    where it was ended for either; nothing of one that its client has left.
    """

    def __init__(self, now: Callable[[], float], begins: Patience, goes_on: Patience) -> None:
        self._now, self._begins, self._goes_on = now, begins, goes_on
        self._since_s = now()
        self._longest_s: float | None = None

    def broken(self) -> None:
        """Something came."""
        now_s = self._now()
        waited_s, self._since_s = now_s - self._since_s, now_s
        if self._longest_s is None:
            self._begins.took(waited_s)
            self._longest_s = 0.0
        else:
            self._longest_s = max(self._longest_s, waited_s)

    async def __aenter__(self) -> None:
        """Its time has begun."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and issubclass(kind, TimeoutError):
            self.broken()
        if self._longest_s and (kind is None or issubclass(kind, TimeoutError)):
            self._goes_on.took(self._longest_s)
