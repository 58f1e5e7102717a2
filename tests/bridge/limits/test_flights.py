"""Requests at once: counted over all gateways, given back by whoever ends, and never too many."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.bridge.limits.buckets import LimitBucket
from controlplane.bridge.limits.flights import APART_S_MAX, SHARED, Flights
from controlplane.bridge.limits.limiter import RedisLimiter
from controlplane.bridge.limits.rate_share import Division, Gateways
from controlplane.gateway.nodes.measured.times import LearnedBound
from controlplane.gateway.ports import Allowance
from controlplane.gateway.snapshot import EMPTY
from controlplane.kernel.clock import monotonic_s
from tests.support.orm import orm
from tests.support.racer import gateways_of, limited_key
from tests.support.servers import Servers, redis_door
from tests.support.waiting import until

BACK_S_MAX = 60.0
# The script takes a silent gateway for present for seven seconds.
LIMIT = 6
KEY = limited_key(at_once=LIMIT)
Make = Callable[..., RedisLimiter]


@pytest.fixture
async def make(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    # What is counted is asked here: on a busy machine Redis must not count as away by chance.
    monkeypatch.setattr(LearnedBound, "seconds", BACK_S_MAX)
    made: list[RedisLimiter] = []

    def make_limiter(counting: Gateways | None = None) -> RedisLimiter:
        limiter = RedisLimiter(
            redis_url, snapshot=lambda: EMPTY, gateways=counting or gateways_of(1)
        )
        limiter.start()
        made.append(limiter)
        return limiter

    yield make_limiter
    for limiter in made:
        await limiter.close()


async def two(make: Make) -> list[RedisLimiter]:
    """Two gateways that share limits."""
    now_s = monotonic_s()
    made = [make(gateways_of(2, living=2, since_s=now_s)) for _ in range(2)]
    for limiter in made:
        assert await limiter.wait_shared(BACK_S_MAX)
    for limiter in made:
        await until(lambda limiter=limiter: shares(limiter))  # type: ignore[misc]
    return made


async def shares(limiter: RedisLimiter) -> bool:
    """Whether it may use the whole limit. A gateway apart would have no room so soon."""
    return (await limiter.look(KEY))[0].remaining == LIMIT


async def fill(limiter: RedisLimiter, times: int = LIMIT + 3) -> list[Allowance]:
    """Ask at once; those that were allowed."""
    answers = await asyncio.gather(*(limiter.take(KEY, 0) for _ in range(times)))
    return [answer for answer in answers if answer.allowed]


async def test_what_ends_makes_room(make: Make) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    allowed = await fill(limiter)
    assert len(allowed) == LIMIT
    refused = await limiter.take(KEY, 0)
    assert not refused.allowed and refused.refused_by is not None
    assert (refused.refused_by.dimension, refused.refused_by.remaining) == ("concurrency", 0)
    assert refused.retry_after_s == 1.0
    limiter.release(allowed[0])
    assert (await limiter.take(KEY, 0)).rooms[0].remaining == 0
    for allowance in allowed[1:]:
        limiter.release(allowance)
    assert (await limiter.look(KEY))[0].remaining == LIMIT - 1


async def test_a_limit_is_one_for_all_gateways(make: Make) -> None:
    first, second = await two(make)
    held = [await fill(first, 4), await fill(second)]
    assert [len(each) for each in held] == [4, LIMIT - 4]
    assert not (await first.take(KEY, 0)).allowed
    first.release(held[0][0])

    async def room() -> bool:
        return (await second.take(KEY, 0)).allowed

    # Nobody asks the first again: it tells of the end by itself.
    await until(room)


async def test_a_request_that_is_cancelled_while_it_asks_holds_nothing(make: Make) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    for steps in range(12):
        asking = [asyncio.ensure_future(limiter.take(KEY, 0)) for _ in range(LIMIT)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for one in asking:
            one.cancel()
        for answer in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(answer, Allowance):
                limiter.release(answer)
    assert len(await fill(limiter)) == LIMIT


async def test_racing_processes_are_never_too_many_at_once(redis_url: str) -> None:
    limit, wanted, processes = 5, 60, 4
    fliers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.flier"),
            *(redis_url, str(limit), str(wanted), str(processes)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        for _ in range(processes)
    ]
    outputs = [await flier.communicate() for flier in fliers]
    seen = [tuple(map(int, out.splitlines()[-1].split())) for out, _ in outputs]
    # A machine with no time for them makes some of them count apart, and then they have fewer.
    assert 1 <= max(highest for _, highest in seen) <= limit
    assert all(allowed >= wanted for allowed, _ in seen)


async def test_what_a_dead_gateway_had_comes_back(make: Make) -> None:
    living = 2
    dead, alive = (
        make(Gateways(name, living=lambda: living, division=lambda: Division(2, monotonic_s())))
        for name in ("dead", "alive")
    )
    for limiter in (dead, alive):
        await limiter.wait_shared(BACK_S_MAX)
        await until(lambda limiter=limiter: shares(limiter))  # type: ignore[misc]
    assert len(await fill(dead)) == LIMIT
    await dead.close()
    assert await fill(alive) == []
    living = 1
    allowed: list[Allowance] = []

    async def came_back() -> bool:
        allowed.extend(await fill(alive))
        return len(allowed) == LIMIT

    await until(came_back)
    assert not (await alive.take(KEY, 0)).allowed


async def test_without_redis_each_keeps_to_what_it_had(make: Make, servers: Servers) -> None:
    first, second = limiters = await two(make)
    held = [await fill(first, 1), await fill(second)]
    assert [len(each) for each in held] == [1, LIMIT - 1]
    servers.redis.kill()
    try:
        await until(lambda: not any(one.shared for one in limiters))
        assert await fill(first) == await fill(second) == []
        first.release(held[0].pop())
        held[0] += await fill(first)
        assert len(held[0]) == 1
        # Of what it had above its half, nothing may be taken again.
        for _ in range(LIMIT - 1):
            second.release(held[1].pop())
        held[1] += await fill(second)
        assert len(held[1]) == LIMIT // 2
    finally:
        await asyncio.to_thread(servers.redis.start)
    await until(lambda: all(one.shared for one in limiters))

    async def all_is_used() -> bool:
        held[0] += await fill(first)
        assert sum(map(len, held)) <= LIMIT
        return sum(map(len, held)) == LIMIT

    await until(all_is_used)


async def test_a_redis_that_forgets_is_told_again(make: Make, redis_url: str) -> None:
    first, second = await two(make)
    held = await fill(first, 4)
    await orm(forget)()
    for _ in range(10):
        assert len(held) + len(allowed := await fill(second)) <= LIMIT
        for allowance in allowed:
            second.release(allowance)
        await asyncio.sleep(0)

    async def used_up() -> bool:
        held.extend(await fill(second))
        assert len(held) <= LIMIT
        return len(held) == LIMIT

    await until(used_up)


async def test_requests_a_day_are_counted_beside_those_at_once(make: Make) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    key = limited_key(a_day=4, at_once=3)
    allowed = [await limiter.take(key, 0) for _ in range(3)]
    day, at_once = allowed[-1].rooms
    assert (day.dimension, day.remaining) == ("requests-day", 1)
    assert (at_once.dimension, at_once.remaining) == ("concurrency", 0)
    refused = await limiter.take(key, 0)
    assert refused.refused_by is not None and refused.refused_by.dimension == "concurrency"
    for allowance in allowed:
        limiter.release(allowance)
    # The request that was refused for the one took nothing of the other.
    limiter.release(await limiter.take(key, 0))
    refused = await limiter.take(key, 0)
    assert refused.refused_by is not None and refused.refused_by.dimension == "requests-day"
    assert refused.retry_after_s == pytest.approx(86_400 / 4, rel=0.01)


@given(
    held=st.lists(st.integers(0, 10), min_size=1, max_size=5),
    asks=st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.floats(0, 400)), max_size=60),
)
def test_gateways_apart_never_have_too_many_together(
    held: list[int], asks: list[tuple[int, bool, float]]
) -> None:
    limit = max(1, sum(held))
    bucket = LimitBucket(b"k", b"", limit, 0.0, "concurrency")
    division, now_s = Division(len(held), -inf), 0.0
    gateways, under_way = [], []
    for count in held:
        flights = Flights()
        flights.heard(SHARED, 0.0)
        for _ in range(count):
            flights.began([bucket])
        under_way.append([now_s] * count)
        flights.lost(0.0)
        gateways.append(flights)
    for number, begins, pause_s in asks:
        now_s += pause_s
        for flights, began in zip(gateways, under_way, strict=True):
            # Nothing lives longer than a request may.
            while began and began[0] + 600 < now_s:
                began.pop(0)
                flights.ended([bucket.name])
        flights, began = gateways[number % len(held)], under_way[number % len(held)]
        if begins and flights.own(bucket) + 1 <= flights.cap(bucket, division, now_s):
            flights.began([bucket])
            began.append(now_s)
        elif not begins and began:
            began.pop(0)
            flights.ended([bucket.name])
        assert sum(map(len, under_way)) <= limit
    later_s = now_s + APART_S_MAX
    assert all(one.cap(bucket, division, later_s) == limit // len(held) for one in gateways)


def forget() -> None:
    """Redis loses everything while every connection stands."""
    with redis_door() as door:
        door.flushall()
