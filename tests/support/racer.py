"""One gateway's limiter as a process of its own: `python -m tests.support.racer URL LIMIT TAKES`.

It says "ready", begins on a line from standard input, and prints how many of its requests were
admitted.
"""

import asyncio
import sys
import uuid
from math import inf

from controlplane.bridge.limits.limiter import RedisLimiter
from controlplane.bridge.limits.rate_share import Division, Gateways
from controlplane.gateway.snapshot import EMPTY, KeyRecord, Limits

AT_ONCE = 50


def limited_key(
    *,
    requests: int | None = None,
    tokens: int | None = None,
    a_day: int | None = None,
    at_once: int | None = None,
    name: int = 1,
) -> KeyRecord:
    """A key with limits."""
    return KeyRecord(
        key_id="K" * 12,
        id=f"{name:032x}",
        digest=b"",
        organization="a" * 32,
        project="b" * 32,
        label="k",
        expires_at_s=None,
        revoked=False,
        models=None,
        budgets=(),
        limits_id=f"{name:032x}",
        limits=Limits(
            requests_per_min=requests,
            tokens_per_min=tokens,
            requests_per_day=a_day,
            concurrency=at_once,
        ),
    )


def gateways_of(share: int, *, living: int = 1, since_s: float = -inf) -> Gateways:
    """One gateway more, which may count 1/`share` of every limit alone."""
    division = Division(share, since_s)
    return Gateways(uuid.uuid4().hex, living=lambda: living, division=lambda: division)


async def race(url: str, limit: int, takes: int) -> int:
    """Ask `takes` times, many at once; how many were admitted."""
    limiter = RedisLimiter(url, snapshot=lambda: EMPTY, gateways=gateways_of(4))
    limiter.start()
    if not await limiter.wait_shared(10):
        raise RuntimeError("no Redis")
    key = limited_key(requests=limit)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    admitted = 0
    for _ in range(takes // AT_ONCE):
        answers = await asyncio.gather(*(limiter.take(key, 0) for _ in range(AT_ONCE)))
        admitted += sum(answer.allowed for answer in answers)
    await limiter.close()
    return admitted


if __name__ == "__main__":
    print(asyncio.run(race(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
