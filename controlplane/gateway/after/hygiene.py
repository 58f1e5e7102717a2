"""Which requests are looked at for hygiene, and what of them came before: a bounded sample.

All are while there is room; near the bound a fixed part, chosen by key and length, so that a
request and its repetition are both in it or both left out. What other gateways served is not known.
"""

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec import structs

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
# Nothing is remembered of larger bodies: to read them takes the time of other requests.
BYTES_MAX = 256 * 1024
DIGEST_BYTES = 16
NEVER_S = -1e9


class Past(NamedTuple):
    """What a request has behind it, as in `Look`."""

    repeated: bool = False
    hasty: bool = False
    tools_again: bool = False
    tool_chars: int = 0


class Marks(NamedTuple):
    """By what a key's request is known again: all that it asks for, and its tools."""

    whole: bytes
    tools: bytes | None
    tool_chars: int


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

    def past(self, marks: Marks | None) -> Past:
        """What came before of it in this key's requests; nothing without marks."""
        if marks is None:
            return Past()
        now_s = monotonic_s()
        served, refused, tools = (self._seen.get(each, NEVER_S) for each in _places(marks))
        return Past(
            now_s - served < RETRY_S, now_s < refused, now_s - tools < TOOLS_S, marks.tool_chars
        )

    def remember(self, marks: Marks | None, *, wait_s: float | None = None) -> None:
        """It was served now; or refused, and told to wait."""
        if marks is None:
            return
        now_s = monotonic_s()
        served, refused, tools = _places(marks)
        if wait_s is not None:
            self._put(refused, now_s + max(BACK_OFF_S, wait_s))
            return
        self._put(served, now_s)
        if marks.tools is not None:
            self._put(tools, now_s)

    def _put(self, digest: bytes, moment_s: float) -> None:
        self._seen.pop(digest, None)
        self._seen[digest] = moment_s
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)


def marks_of(key: str, ask: Ask) -> Marks | None:
    """To be made once for a request; its spelling as JSON plays no part. None where it has
    pictures or a body beyond the bound.
    """
    if ask.bytes > BYTES_MAX or ask.pictures:
        return None

    def digest(asked: object) -> tuple[bytes, int]:
        # Not as MessagePack, which refuses the large integers that a tool's schema may hold.
        data = msgspec.json.encode(asked)
        return blake2b(data, digest_size=DIGEST_BYTES, key=key.encode()).digest(), len(data)

    if not ask.tools:
        return Marks(digest(ask)[0], None, 0)
    tools, tool_chars = digest(ask.tools)
    whole, _ = digest((structs.replace(ask, tools=()), tools))
    return Marks(whole, tools, tool_chars)


def _places(marks: Marks) -> tuple[bytes, bytes, bytes]:
    """Where it stands once it was served, once refused, and where its tools stand."""
    return marks.whole + b"served", marks.whole + b"refused", (marks.tools or b"") + b"tools"
