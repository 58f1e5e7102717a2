"""Which requests are looked at for hygiene, and what of them came before: a bounded sample.

All are while there is room; near the bound a fixed part, chosen by key and length, so that a
request and its repetition are both in it or both left out. What other gateways served is not known.
"""

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.ports import Hygiene
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.insights.hygiene import BACK_OFF_S, RETRY_S, TOOLS_S

CHECKS_PER_S = 20.0
CHECKS_AT_ONCE = 100.0
# With less than this part of the room left, one in so many lengths of body is looked at.
ROOM_LOW = 0.5
THINNED = 4
REMEMBERED_MAX = 8_192
DIGEST_BYTES = 16
NEVER_S = -1e9


class Past(NamedTuple):
    """What a request has behind it, as in `Look`."""

    repeated: bool = False
    hasty: bool = False
    tools_again: bool = False


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

    def past(self, key: str, ask: Ask) -> Past:
        """What came before of it in this key's requests."""
        if ask.pictures:
            return Past()
        now_s = monotonic_s()
        served, refused, tools = (self._seen.get(each, NEVER_S) for each in _digests(key, ask))
        return Past(now_s - served < RETRY_S, now_s < refused, now_s - tools < TOOLS_S)

    def remember(self, key: str, ask: Ask, *, wait_s: float | None = None) -> None:
        """It was served now; or refused, and told to wait."""
        now_s = monotonic_s()
        served, refused, tools = _digests(key, ask)
        if wait_s is not None:
            self._put(refused, now_s + max(BACK_OFF_S, wait_s))
            return
        self._put(served, now_s)
        if ask.tools:
            self._put(tools, now_s)

    def _put(self, digest: bytes, moment_s: float) -> None:
        self._seen.pop(digest, None)
        self._seen[digest] = moment_s
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)


def _digests(key: str, ask: Ask) -> tuple[bytes, bytes, bytes]:
    """Of all that it asks for, once it was served and once refused, and of its tools; its spelling
    as JSON plays no part.
    """
    # Not as MessagePack, which refuses the large integers that a tool's schema may hold.
    body, tools = msgspec.json.encode(ask), msgspec.json.encode(ask.tools)

    def digest(data: bytes, part: bytes) -> bytes:
        return blake2b(data, digest_size=DIGEST_BYTES, key=key.encode(), person=part).digest()

    return digest(body, b"served"), digest(body, b"refused"), digest(tools, b"tools")
