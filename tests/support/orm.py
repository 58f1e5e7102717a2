"""Services and selectors from async tests: in a thread, whose connection is closed afterwards."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import connections

# How long is no claim: news takes tens of milliseconds, and on a busy machine some seconds.
SEEN_S_MAX = 60.0
P = ParamSpec("P")
T = TypeVar("T")


def orm(work: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """The same call, awaitable; no connection outlives it, so that databases can be dropped."""

    @wraps(work)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(*args, **kwargs)
        finally:
            connections.close_all()

    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(inside, *args, **kwargs)

    return call


async def until(
    seen: Callable[[], Awaitable[bool] | bool], seconds_max: float = SEEN_S_MAX
) -> None:
    """Look every 20 ms until it is so; raises TimeoutError."""
    async with asyncio.timeout(seconds_max):
        while True:
            answer = seen()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.02)


async def seen_after_s(seen: Callable[[], Awaitable[bool]]) -> float:
    """Seconds to the beginning of the first look that finds it so: what it takes counts not."""
    began_s = looked_s = time.monotonic()

    async def look() -> bool:
        nonlocal looked_s
        looked_s = time.monotonic()
        return await seen()

    await until(look)
    return looked_s - began_s
