"""The node's cache events to all gateways: merged, at most so many a second, encoded once for all.

An engine tells of each of its steps. A gateway with a thousand nodes has no use for that: blocks
that came and went in between are none of its business. When the engine rests, nothing waits.
"""

import asyncio
from collections.abc import Callable

import msgspec

from inference.contract.blocks import HASH_BYTES, BlockChanges, split_hashes
from inference.contract.codec import encode
from inference.contract.frames import FRAME_BYTES_MAX, KvEvents
from inference.node.options import LOAD_INTERVAL_S

# Leaves room for the frame's other fields; a larger cache is announced only in part.
SNAPSHOT_HASHES_MAX = FRAME_BYTES_MAX // HASH_BYTES - 64


class CacheNews:
    """Numbers events anew, since one here may stand for several of the engine's."""

    def __init__(self, send_all: Callable[[bytes], None]) -> None:
        self.idle = True
        self._send_all = send_all
        self._changes = BlockChanges()
        self._sent_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, events: KvEvents) -> None:
        """What the engine tells goes out within `LOAD_INTERVAL_S`, at once where it rests."""
        if events.snapshot:
            self.flush()
            self._send_all(self.snapshot(events))
            return
        self._changes.note(split_hashes(events.removed), stored=False)
        self._changes.note(split_hashes(events.stored), stored=True)
        loop = asyncio.get_running_loop()
        due_s = self._sent_s + LOAD_INTERVAL_S
        if self.idle or due_s <= loop.time():
            self.flush()
        elif self._timer is None:
            self._timer = loop.call_at(due_s, self.flush)

    def flush(self) -> None:
        """Send what has been kept back."""
        self.stop()
        if (events := self._changes.events()) is not None:
            self._sent_s = asyncio.get_running_loop().time()
            self._send_all(encode(events))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def snapshot(self, found: KvEvents) -> bytes:
        """The engine's cache as of its last events, as a frame; nothing must be kept back."""
        stored = found.stored[: SNAPSHOT_HASHES_MAX * HASH_BYTES]
        return encode(msgspec.structs.replace(found, seq=self._changes.seq, stored=stored))
