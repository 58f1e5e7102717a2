"""Which finished requests are looked at for hygiene, and whether one came again: a bounded sample.

All are while there is room; near the bound a fixed part, chosen by key and length, so that a
request and its repetition are both in it or both left out. What other gateways served is not known.
"""

from collections import OrderedDict
from hashlib import blake2b

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.ports import Hygiene
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.insights.hygiene import RETRY_S

CHECKS_PER_S = 20.0
CHECKS_AT_ONCE = 100.0
# With less than this part of the room left, one in so many lengths of body is looked at.
ROOM_LOW = 0.5
THINNED = 4
REMEMBERED_MAX = 8_192
DIGEST_BYTES = 16


class HygieneWatch:
    """One per gateway process; `port` is told of every request, looked at or not."""

    def __init__(self, port: Hygiene) -> None:
        self.port = port
        self._room = CHECKS_AT_ONCE
        self._filled_at_s = monotonic_s()
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def takes(self, key: str, ask: Ask) -> bool:
        """Whether this request is looked at; counts it if so. Pictures take too long to read."""
        if ask.pictures:
            return False
        now_s = monotonic_s()
        filled = self._room + (now_s - self._filled_at_s) * CHECKS_PER_S
        self._room, self._filled_at_s = min(CHECKS_AT_ONCE, filled), now_s
        low = self._room < CHECKS_AT_ONCE * ROOM_LOW
        if self._room < 1 or (low and hash((key, ask.bytes)) % THINNED):
            return False
        self._room -= 1
        return True

    def came_before(self, key: str, ask: Ask) -> bool:
        """Whether the key asked the same less than `RETRY_S` ago; remembers that it asks now."""
        digest, now_s = _digest(key, ask), monotonic_s()
        before_s = self._seen.pop(digest, None)
        self._seen[digest] = now_s
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)
        return before_s is not None and now_s - before_s < RETRY_S

    def has_come(self, key: str, ask: Ask) -> bool:
        before_s = None if ask.pictures else self._seen.get(_digest(key, ask))
        return before_s is not None and monotonic_s() - before_s < RETRY_S


def _digest(key: str, ask: Ask) -> bytes:
    """Of all that the request asks for; its spelling as JSON plays no part."""
    # Not as MessagePack, which refuses the large integers that a tool's schema may hold.
    body = msgspec.json.encode(ask)
    return blake2b(body, digest_size=DIGEST_BYTES, key=key.encode()).digest()
