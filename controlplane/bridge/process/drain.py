"""Work before the server's own answer to a stop signal.

uvicorn closes every socket as soon as it is told to stop, the nodes' links among them, so requests
in progress would lose their nodes. They are let finish first; a second signal does not wait.
"""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Handler = Callable[[int, FrameType | None], Any]


class DrainFirst:
    """Stands before the server's signal handlers; without any, as in tests, it does nothing."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._handlers: dict[int, Handler] = {}
        self._task: asyncio.Task[None] | None = None

    def install(self) -> None:
        """Take the signals over; needs a running loop."""
        if threading.current_thread() is not threading.main_thread():
            return
        # A server handles SIGTERM; where no one does, there is no server to pass signals on to.
        if not callable(signal.getsignal(signal.SIGTERM)):
            return
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                loop.add_signal_handler(number, self._asked, number)

    def remove(self) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in self._handlers.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
        self._handlers = {}

    def _asked(self, number: int) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drain(number), name="drain")
        else:
            self._pass_on(number)

    async def _drain(self, number: int) -> None:
        await self._work()
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        handler = self._handlers.get(number)
        if handler is not None:
            self.remove()
            handler(number, None)
