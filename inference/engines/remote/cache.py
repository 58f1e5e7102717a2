"""The channel of cache events that vLLM and SGLang publish, followed as long as it can be read.

Messages are numbered. What was missed is asked for at the server's replay address, where it has
one; else everything is forgotten, since a block that is wrongly believed to be cached costs a wrong
route. Nothing that comes, or does not, costs more than the index.
"""

import asyncio
import logging
from collections.abc import Callable

import zmq
import zmq.asyncio

from inference.contract.frames import KvEvents
from inference.engines.base import clock_us
from inference.engines.remote.index import BlockIndex, Unfollowable, number_of

RECONNECT_MS = 10
REPLAY_TIMEOUT_S = 5.0
# A server has computed blocks and told of none for so long: its channel is silent.
SILENCE_S = 5.0
MICROSECONDS_PER_S = 1_000_000
NUMBER_BYTES = 8
# The last message of a replay.
REPLAY_ENDS = b"\xff" * NUMBER_BYTES

log = logging.getLogger(__name__)


class CacheFollower:
    """Feeds an index; `tell` gets its changes, and all of it when it is known, or no more.

    `addresses` are of the channel and, behind a comma, of its replays.
    """

    def __init__(self, index: BlockIndex, addresses: str, tell: Callable[[KvEvents], None]) -> None:
        self._index = index
        self._channel, _, self._replays = addresses.partition(",")
        self._tell = tell
        # The newest message of the channel, when one came, and since when one is overdue.
        self._newest = -1
        self._heard_us = 0
        self._expected_us: int | None = None

    async def run(self) -> None:
        """Until the index is lost."""
        try:
            await self._listen()
        except (Unfollowable, zmq.ZMQError) as error:
            self._tell(self._index.lose(error))

    async def _listen(self) -> None:
        """It listens before it asks for what went before; raises `Unfollowable`, `zmq.ZMQError`."""
        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.connect(self._channel)
            await self._replay(context)
            while not self._index.lost:
                frames = await socket.recv_multipart()
                number = number_of(frames)
                if number <= self._newest:
                    # Another server has taken its place and counts anew.
                    self.begin_anew()
                self._newest = number
                if number > self._index.next_number:
                    await self._replay(context)
                # What a replay brought comes here as well.
                if number >= self._index.next_number:
                    self._take(frames)

    def begin_anew(self) -> None:
        """The server has ended, and its cache with it."""
        self._newest = -1
        self._index.restarted()
        self._tell(self._index.snapshot())

    def expect(self, since_us: int) -> None:
        """The server has computed blocks since then, of which it should have told, or will soon."""
        if self._expected_us is None and self._heard_us < since_us:
            self._expected_us = clock_us()

    def look(self) -> None:
        """Give up on a silent channel, until it speaks again."""
        if self._expected_us is None or not self._index.known:
            return
        if clock_us() - self._expected_us > SILENCE_S * MICROSECONDS_PER_S:
            log.error("no cache events from %s: its cache is not known", self._channel)
            self._index.known = False
            self._tell(self._index.snapshot())

    def _take(self, frames: list[bytes]) -> None:
        self._heard_us, self._expected_us = clock_us(), None
        before, changed = self._index.known, self._index.take(frames)
        if self._index.known != before:
            self._tell(self._index.snapshot())
        elif changed is not None:
            self._tell(changed)

    async def _replay(self, context: zmq.asyncio.Context) -> None:
        """Catch up, where the server still has what was missed; else the next message is a gap."""
        if not self._replays:
            return
        with context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(self._replays)
            number = self._index.next_number.to_bytes(NUMBER_BYTES, "big")
            await socket.send_multipart([b"", number])
            try:
                async with asyncio.timeout(REPLAY_TIMEOUT_S):
                    while (frames := await socket.recv_multipart())[-2] != REPLAY_ENDS:
                        self._take(frames)
            except (TimeoutError, Unfollowable) as error:
                log.warning("no replay from %s: %s %s", self._replays, type(error).__name__, error)
                return
        if self._index.fresh:
            # Nothing was ever cached: that is known, too.
            self._index.known = True
            self._tell(self._index.snapshot())
