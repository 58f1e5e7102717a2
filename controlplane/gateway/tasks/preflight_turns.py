"""How often a key may ask what a request would meet: encoding for it costs the gateway time."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.gateway.refusal import Refusal
from controlplane.kernel.clock import monotonic_s

PER_MIN_MAX = 60
AT_ONCE_MAX = 8
KEYS_MAX = 4_096
RETRY_S = 1
MINUTE_S = 60.0


class Preflights:
    """How many are under way, and how many each key has left: so many a minute, refilled evenly."""

    def __init__(self) -> None:
        self._running = 0
        self._rooms: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """One check of a key; raises `Refusal` (429)."""
        now_s = monotonic_s()
        room, at_s = self._rooms.pop(key, (float(PER_MIN_MAX), now_s))
        room = min(PER_MIN_MAX, room + (now_s - at_s) * PER_MIN_MAX / MINUTE_S)
        refused = room < 1 or self._running >= AT_ONCE_MAX
        self._rooms[key] = (room if refused else room - 1, now_s)
        if len(self._rooms) > KEYS_MAX:
            self._rooms.popitem(last=False)
        if refused:
            what = "preflight checks and token counts"
            message = f"A key may run at most {PER_MIN_MAX} {what} per minute."
            retry = (("retry-after", str(RETRY_S)),)
            raise Refusal(429, "rate_limit_exceeded", message, kind="requests", headers=retry)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
