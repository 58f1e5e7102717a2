"""Answers to clients that read slowly: how long they may take, and what is kept for them."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from controlplane.kernel.bytes_budget import Portion

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

# Between two pieces of an answer, and what a client may be behind the rate below over all of it.
SEND_S_MAX = 30.0
BYTES_PER_S_MIN = 16 << 10
# Of one answer: more than any page has.
KEPT_BYTES_MAX = 1 << 20


class ReaderGone(ConnectionError):
    """The client left before its request was whole, or reads too slowly."""


class PacedSend:
    """`send` for one answer, of which the client has to take `BYTES_PER_S_MIN`.

    Only time spent in sending counts, not what the application takes to make the next piece.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._left_s = SEND_S_MAX

    async def __call__(self, message: Message) -> None:
        """Raises `ReaderGone`."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(min(SEND_S_MAX, self._left_s)):
                await self._send(message)
        except TimeoutError:
            raise ReaderGone from None
        self._left_s += len(message.get("body", b"")) / BYTES_PER_S_MIN - (loop.time() - begun)


class BufferedAnswer:
    """An answer that is kept until its application is done, so that sending it holds nothing else.

    One that is larger than `KEPT_BYTES_MAX`, or has no room in the budget, is sent while it is
    made: the application waits for its client.
    """

    def __init__(self, send: Send, portion: Portion) -> None:
        self._send = send
        self._portion = portion
        self._kept: list[Message] = []
        self._direct = False

    async def put(self, message: Message) -> None:
        """The application's `send`; raises `ReaderGone`."""
        if not self._direct:
            fits = self._portion.grow(len(message.get("body", b"")))
            self._kept.append(message)
            self._direct = not fits or self._portion.size > KEPT_BYTES_MAX
            if self._direct:
                await self.flush()
        else:
            await self._send(message)

    async def flush(self) -> None:
        """Send what is kept; raises `ReaderGone`."""
        kept, self._kept = self._kept, []
        for message in kept:
            await self._send(message)
        self.drop()

    def drop(self) -> None:
        self._kept = []
        self._portion.free()
