"""What a link keeps beyond its connection, to resume with its gateway after a break."""

import asyncio
from collections.abc import Callable

from inference.contract.frames import Welcome
from inference.contract.replay import Replay, Resume
from inference.node.options import RESUME_S, SILENT_PINGS_MAX


class Session:
    """From welcome until either end gives it up; `name` was said in the hello.

    `received` counts the gateway's frames since the welcome.
    """

    def __init__(self, name: str, welcome: Welcome) -> None:
        self.name = name
        self.received = 0
        self.silence_max_s = SILENT_PINGS_MAX * welcome.ping_interval_s
        self.replay = Replay()
        self._resume_s = min(RESUME_S, welcome.resume_s)
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def resumable(self) -> bool:
        """The gateway keeps its end of it over a break."""
        return self._resume_s > 0

    @property
    def request(self) -> Resume:
        return Resume(session=self.name, received=self.received, held=self.replay.held)

    def keep(self, data: bytes) -> None:
        if self.resumable:
            self.replay.add(data)

    def expire_later(self, expired: Callable[[], None]) -> None:
        """The connection broke: call this unless the session is resumed in time."""
        self._expiry = asyncio.get_running_loop().call_later(self._resume_s, expired)

    def go_on(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
