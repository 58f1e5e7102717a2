"""Bounds on how long callers wait for the ledger: one timer for all of them."""

import asyncio
from collections import deque
from collections.abc import Callable

from controlplane.gateway.ports import LedgerAway


class Deadlines:
    """Fails each future that is not done in time with `LedgerAway`; all get the same time."""

    def __init__(self, seconds_max: Callable[[], float], problem: str) -> None:
        self._seconds_max = seconds_max
        self._problem = problem
        self._watched: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, waiting: asyncio.Future[None]) -> None:
        """Begin its time."""
        watched = self._watched
        while watched and watched[0][1].done():
            watched.popleft()
        loop = waiting.get_loop()
        watched.append((loop.time() + self._seconds_max(), waiting))
        if self._timer is None:
            self._timer = loop.call_at(watched[0][0], self._look)

    def _look(self) -> None:
        watched, self._timer = self._watched, None
        while watched:
            end_s, waiting = watched[0]
            if not waiting.done():
                loop = waiting.get_loop()
                if loop.time() < end_s:
                    self._timer = loop.call_at(end_s, self._look)
                    return
                problem = f"{self._problem} within {self._seconds_max():g} s"
                waiting.set_exception(LedgerAway(problem))
            watched.popleft()
