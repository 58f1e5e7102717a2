"""The transport of a connection as one answer sees it."""

import asyncio
from collections.abc import Callable


class Ending:
    """A transport whose `close` is the protocol's, which leaves the client time to read."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self.write = transport.write
        self.is_closing = transport.is_closing
        self.close = close
