"""Work that takes long and needs no loop, such as reading a body of megabytes: on a thread, one
piece after the other, so that it never takes more than its share from everybody's streams.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from controlplane.gateway.refusal import over_share, unavailable
from controlplane.kernel.shares import is_over_share

# A body of this size, or with so many values, holds the loop for some milliseconds.
LARGE_BYTES = 262_144
LARGE_VALUES = 16_384
WAITING_MAX = 32
RETRY_S = 1

Given = TypeVar("Given")
Made = TypeVar("Made")


def is_large(body: bytes) -> bool:
    """Whether JSON of it is read on the thread; commas within texts count as well."""
    size = len(body)
    return size > LARGE_VALUES and (size > LARGE_BYTES or body.count(b",") > LARGE_VALUES)


class Offload:
    """A thread or a few, and a queue for them, of which a tenant gets its share,
    and up to half while the rest is free."""

    def __init__(self, threads: int = 1) -> None:
        self._thread = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="offload")
        self._waiting: Counter[str] = Counter()

    async def run(self, work: Callable[[Given], Made], given: Given, *, tenant: str) -> Made:
        """What the work returns or raises; raises `Refusal` (429, 503) where too much waits."""
        own, total = self._waiting[tenant] + 1, self._waiting.total() + 1
        if is_over_share(own, total, WAITING_MAX):
            raise over_share("large requests", retry_after_s=RETRY_S)
        if total > WAITING_MAX:
            message = f"Too many large requests are in progress. Try again in {RETRY_S} s."
            raise unavailable("server_is_overloaded", message, retry_after_s=RETRY_S)
        self._waiting[tenant] += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, work, given)
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant]

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
