"""How late the event loop comes: a loop that something blocks cannot answer a probe, and one that
was blocked says for how long.
"""

import asyncio
from collections import deque

BEAT_S = 0.5
# Half a minute: longer than a probe's period, so that each lateness is told once at least.
BEATS_KEPT = 60
# Of a few seconds: how it is just now.
BEATS_LATELY = 10


class Pulse:
    """Beats from `start` to `stop` and notes how late each beat was."""

    def __init__(self) -> None:
        self._late_s: deque[float] = deque(maxlen=BEATS_KEPT)
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def late_s(self) -> float:
        """The worst of the last half minute, the present beat included."""
        if self._timer is None:
            return 0.0
        now_s = asyncio.get_running_loop().time() - self._due_s
        return max(0.0, now_s, *self._late_s)

    @property
    def lately_s(self) -> float:
        """The worst of the last few seconds."""
        return max([0.0, *self._late_s][-BEATS_LATELY:])

    def start(self) -> None:
        self._beat_later(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due_s = loop.time() + BEAT_S
        self._timer = loop.call_at(self._due_s, self._beat, loop)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._late_s.append(loop.time() - self._due_s)
        self._beat_later(loop)
