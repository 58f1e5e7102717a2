"""Find stop strings in a stream of text, also when one spans several tokens."""


class StopFinder:
    """Lets text through as soon as no stop string can begin in it; the match itself is cut.

    `match` is the stop string that was found.
    """

    __slots__ = ("_held", "_longest", "_stops", "match")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._held = ""
        self.match: str | None = None

    @property
    def stopped(self) -> bool:
        return self.match is not None

    def feed(self, text: str) -> str:
        """Return what may be shown now; sets `match` when a stop string is complete."""
        if not self._stops or self.match is not None:
            return text if self.match is None else ""
        window = self._held + text
        found = [(place, stop) for stop in self._stops if (place := window.find(stop)) >= 0]
        if found:
            place, self.match = min(found)
            self._held = ""
            return window[:place]
        keep = self._possible_start(window)
        self._held = window[len(window) - keep :]
        return window[: len(window) - keep]

    def close(self) -> str:
        """Text held back that turned out not to be a stop string."""
        rest, self._held = self._held, ""
        return rest

    def _possible_start(self, window: str) -> int:
        """Length of the longest end of `window` that could be the start of a stop string."""
        for length in range(min(len(window), self._longest - 1), 0, -1):
            tail = window[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
