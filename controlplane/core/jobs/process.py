"""The signs of life of a process that serves, from its event loop: outside of all requests."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import redis
import structlog
from django.conf import settings
from redis.asyncio import Redis
from redis.asyncio.retry import Retry

from controlplane.core.jobs.lives import (
    REDIS_S_MAX,
    Life,
    life_drop,
    life_put,
    own_life,
    place_name,
    redis_options,
)
from controlplane.embedded.redis_places import async_redis_pool
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.tasks import end

BEAT_S = 1.0
# Rates are of the last seconds.
RATE_BEATS = 5

log = structlog.get_logger(__name__)
Levels = dict[str, tuple[float, float]]


class ProcessFacts(NamedTuple):
    """What a process says at a beat. `counts` only grow; their rates are what is shown."""

    levels: Levels
    counts: dict[str, float] = {}
    proxies: dict[str, int] = {}
    problem: str = ""
    instance: str = ""


class ProcessBeat:
    """Gives a sign each second from `start` to `stop`; without Redis none, without an error."""

    def __init__(self, kind: str, tell: Callable[[], ProcessFacts]) -> None:
        self._kind = kind
        self._tell = tell
        self._counts: deque[tuple[float, dict[str, float]]] = deque(maxlen=RATE_BEATS)
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="heartbeat")

    async def stop(self) -> None:
        """Cease, and take the record away if that is possible at once."""
        if self._task is not None:
            await end(self._task)
            async with _redis() as connection:
                await self._write(connection, life_drop, own_life(self._kind, place_name()))

    async def _run(self) -> None:
        async with _redis() as connection:
            while True:
                await self._write(connection, life_put, self._life())
                await asyncio.sleep(BEAT_S)

    async def _write(
        self, connection: Redis, write: Callable[[Any, Life], None], life: Life
    ) -> None:
        try:
            async with asyncio.timeout(REDIS_S_MAX), connection.pipeline(transaction=False) as pipe:
                write(pipe, life)
                await pipe.execute()
            self._failing = False
        except (redis.RedisError, OSError, TimeoutError) as error:
            if not self._failing:
                log.warning("no_heartbeat", kind=self._kind, error=type(error).__name__)
            self._failing = True

    def _life(self) -> Life:
        told, now_s = self._tell(), monotonic_s()
        self._counts.append((now_s, told.counts))
        then_s, before = self._counts[0]
        passed_s = max(now_s - then_s, BEAT_S)
        rates = {
            name: round((count - before.get(name, count)) / passed_s, 2)
            for name, count in told.counts.items()
        }
        return own_life(
            self._kind,
            place_name(),
            levels=told.levels,
            rates=rates,
            proxies=told.proxies,
            problem=told.problem,
            instance=told.instance,
        )


def _redis() -> Redis:
    return Redis.from_pool(async_redis_pool(settings.REDIS_URL, **redis_options(Retry)))
