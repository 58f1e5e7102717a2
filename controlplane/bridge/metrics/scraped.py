"""What one gateway process answers to scrapes: figures are added up for one scrape at a time."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

from controlplane.kernel.clock import monotonic_s

# Shorter than anybody scrapes: two servers of Prometheus that come together cost as much as one.
KEPT_S = 1.0

Make = Callable[[], Coroutine[Any, Any, bytes]]


class Scraped:
    """The last page and when it was made; those who ask in the meantime wait for the same one."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._page = b""
        self._made_s = -math.inf
        self._making: asyncio.Task[bytes] | None = None

    async def page(self, make: Make) -> bytes:
        """The last page while it may be kept, else a new one; raises what `make` raises."""
        if self._making is None:
            if monotonic_s() - self._made_s < self._kept_s:
                return self._page
            self._making = asyncio.create_task(self._make(make), name="scrape")
        # A scrape that gives up leaves the others theirs.
        return await asyncio.shield(self._making)

    async def _make(self, make: Make) -> bytes:
        try:
            self._page = await make()
            self._made_s = monotonic_s()
            return self._page
        finally:
            self._making = None
