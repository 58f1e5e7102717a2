"""One gateway's requests under way: `python -m tests.support.flier URL LIMIT WANTED GATEWAYS`.

Each allowed request raises a count in Redis while it is surely under way. Prints how many were
allowed, and the highest count that any of them saw.
"""

import asyncio
import random
import sys

import redis.asyncio

from controlplane.bridge.limits.limiter import RedisLimiter
from controlplane.gateway.snapshot import EMPTY
from tests.support.racer import gateways_of, limited_key
from tests.support.waiting import until

AT_ONCE = 40
UNDER_WAY_S_MAX = 0.02
COUNT = "under way"
WAIT_S_MAX = 60.0


async def fly(url: str, limit: int, wanted: int, living: int) -> tuple[int, int]:
    """Ask, many at once, until `wanted` were allowed; those are under way for a while."""
    limiter = RedisLimiter(url, snapshot=lambda: EMPTY, gateways=gateways_of(living, living=living))
    limiter.start()
    if not await limiter.wait_shared(10):
        raise RuntimeError("no Redis")
    key, seen = limited_key(at_once=limit), []
    oracle = redis.asyncio.Redis.from_url(url, max_connections=AT_ONCE)

    async def one() -> None:
        allowance = await limiter.take(key, 0)
        if not allowance.allowed:
            return
        seen.append(int(await oracle.incr(COUNT)))
        await asyncio.sleep(random.uniform(0, UNDER_WAY_S_MAX))
        await oracle.incr(COUNT, -1)
        limiter.release(allowance)

    async def all_are(where: str) -> None:
        """A limit is shared while all gateways are there: none begins or leaves before another."""
        await oracle.incr(where)

        async def complete() -> bool:
            return int(await oracle.get(where) or 0) == living

        await until(complete, WAIT_S_MAX)

    await limiter.look(key)
    await all_are("here")
    async with asyncio.timeout(WAIT_S_MAX):
        while len(seen) < wanted:
            await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    await all_are("done")
    await oracle.aclose()
    await limiter.close()
    return len(seen), max(seen, default=0)


if __name__ == "__main__":
    print(*asyncio.run(fly(sys.argv[1], *map(int, sys.argv[2:5]))))
