"""Services and selectors from async tests: in a thread, whose connection is closed afterwards."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import connections

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
