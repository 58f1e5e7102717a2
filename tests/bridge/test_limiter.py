"""The Limiter port on a real Redis: exact under races, divided without Redis, never over."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable

import pytest
import redis

from controlplane.bridge.limiter import TAKES_WAITING_MAX, UNLIMITED, RedisLimiter
from controlplane.bridge.redis_link import REPLY_S_MAX
from controlplane.gateway.snapshot import EMPTY, Limits, ProjectRecord, Snapshot
from controlplane.kernel.clock import monotonic_s
from tests.support.orm import until
from tests.support.racer import gateways_of, limited_key
from tests.support.servers import Servers

PROJECT = "b" * 32
BACK_S_MAX = 5.0
Make = Callable[..., RedisLimiter]


@pytest.fixture
async def make(redis_url: str) -> AsyncIterator[Make]:
    made: list[RedisLimiter] = []

    def make_limiter(gateways: int = 1, snapshot: Snapshot = EMPTY) -> RedisLimiter:
        counting = gateways_of(gateways)
        limiter = RedisLimiter(redis_url, snapshot=lambda: snapshot, gateways=counting)
        limiter.start()
        made.append(limiter)
        return limiter

    yield make_limiter
    for limiter in made:
        await limiter.close()


async def admitted(limiter: RedisLimiter, times: int, **limits: int | None) -> int:
    key = limited_key(**({"requests": None} | limits))  # type: ignore[arg-type]
    return sum([(await limiter.take(key, 0)).allowed for _ in range(times)])


async def test_requests_are_counted_and_refused_with_every_figure(make: Make) -> None:
    limiter = make()
    assert await limiter.wait_shared(BACK_S_MAX)
    key = limited_key(requests=3, tokens=1_000)
    first = await limiter.take(key, 100)
    assert first.allowed and first.refused_by is None
    requests, used = first.rooms
    assert (requests.dimension, requests.limit, requests.remaining) == ("requests", 3, 2)
    assert (used.dimension, used.limit, used.remaining) == ("tokens", 1_000, 900)
    assert requests.reset_s == pytest.approx(20, abs=0.5)
    assert used.reset_s == pytest.approx(6, abs=0.5)
    await limiter.take(key, 100)
    await limiter.take(key, 100)
    refused = await limiter.take(key, 100)
    assert not refused.allowed and refused.refused_by is not None
    assert (refused.refused_by.dimension, refused.refused_by.remaining) == ("requests", 0)
    assert refused.retry_after_s == pytest.approx(20, abs=1)


async def test_tokens_are_counted_and_given_back(make: Make) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    key = limited_key(requests=None, tokens=1_000)
    assert (await limiter.take(key, 900)).allowed
    refused = await limiter.take(key, 300)
    assert not refused.allowed and refused.refused_by is not None
    assert [room.dimension for room in refused.rooms] == ["tokens"]
    assert refused.retry_after_s == pytest.approx(12, abs=1)
    limiter.give_back(key, 800)
    accepted = await limiter.take(key, 300)
    assert accepted.allowed
    assert accepted.rooms[0].remaining == pytest.approx(600, abs=20)


async def test_a_refused_request_takes_nothing_from_its_other_limits(make: Make) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    key = limited_key(requests=10, tokens=100)
    for _ in range(20):
        assert not (await limiter.take(key, 101)).allowed
    assert (await limiter.take(key, 1)).rooms[0].remaining == 9


async def test_a_projects_limit_is_shared_by_its_keys(make: Make) -> None:
    project = ProjectRecord(
        id=PROJECT,
        organization="a" * 32,
        safety="off",
        salt=b"",
        limits=Limits(requests_per_min=5),
    )
    snapshot = Snapshot(version=1, keys={}, projects={PROJECT: project}, models={}, rules=())
    limiter = make(snapshot=snapshot)
    await limiter.wait_shared(BACK_S_MAX)
    keys = [limited_key(requests=100, name=1), limited_key(requests=None, name=2)]
    answers = [await limiter.take(keys[n % 2], 0) for n in range(8)]
    assert [answer.allowed for answer in answers] == [True] * 5 + [False] * 3
    assert (answers[0].rooms[0].limit, answers[0].rooms[0].scope) == (5, "project")


async def test_a_key_without_limits_never_reaches_redis() -> None:
    limiter = RedisLimiter("unix:///nowhere", snapshot=lambda: EMPTY, gateways=gateways_of(0))
    assert await limiter.take(limited_key(requests=None), 10**9) is UNLIMITED


async def test_room_is_told_far_from_every_limit_only(make: Make) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    key = limited_key(requests=100, tokens=1_000)
    assert not limiter.roomy(key, 1)  # Not seen yet.
    await limiter.take(key, 100)
    assert limiter.roomy(key, 300)
    assert not limiter.roomy(key, 600)
    for _ in range(60):
        await limiter.take(key, 0)
    assert not limiter.roomy(key, 1)
    assert not limiter.roomy(limited_key(requests=None), 1)  # Nobody would be asked.


async def test_many_at_once_are_admitted_up_to_the_limit(make: Make) -> None:
    limiters = [make(4) for _ in range(3)]
    for limiter in limiters:
        await limiter.wait_shared(BACK_S_MAX)
    key = limited_key(requests=60)
    answers = await asyncio.gather(*(limiters[n % 3].take(key, 0) for n in range(600)))
    assert sum(answer.allowed for answer in answers) in (60, 61)


async def test_racing_processes_never_pass_the_limit(redis_url: str) -> None:
    limit, takes, processes = 300, 400, 4
    began = monotonic_s()
    racers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.racer"),
            *(redis_url, str(limit), str(takes)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        for _ in range(processes)
    ]
    outputs = [await racer.communicate() for racer in racers]
    total = sum(int(out.splitlines()[-1]) for out, _ in outputs)
    assert limit <= total <= limit + (monotonic_s() - began) * limit / 60


async def test_a_gateway_alone_goes_on_where_redis_was_and_tells_it(
    make: Make, servers: Servers
) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    assert await admitted(limiter, 10, requests=100) == 10
    servers.redis.kill()
    try:
        await until(lambda: not limiter.shared, BACK_S_MAX)
        assert 90 <= await admitted(limiter, 120, requests=100) <= 93
    finally:
        await asyncio.to_thread(servers.redis.start)
    await until(lambda: limiter.shared, BACK_S_MAX)
    # Redis came back empty, and yet knows that nothing is left but what has leaked since.
    assert await admitted(limiter, 50, requests=100) <= 10


async def test_several_gateways_without_redis_never_pass_the_limit_together(
    make: Make, servers: Servers
) -> None:
    limiters = [make(2), make(2)]
    for limiter in limiters:
        await limiter.wait_shared(BACK_S_MAX)
    # The first sees only its own; what the second uses afterwards must count all the same.
    began = monotonic_s()
    used = [await admitted(limiter, 40, requests=100) for limiter in limiters]
    servers.redis.kill()
    try:
        await until(lambda: not any(one.shared for one in limiters), BACK_S_MAX)
        await asyncio.sleep(1.3)
        used += [await admitted(limiter, 100, requests=100) for limiter in limiters]
        # Each share refills from nothing: 50 a minute.
        assert all(1 <= count <= 3 for count in used[2:])
    finally:
        await asyncio.to_thread(servers.redis.start)
    await until(lambda: all(one.shared for one in limiters), BACK_S_MAX)
    used += [await admitted(limiter, 100, requests=100) for limiter in limiters]
    assert sum(used) <= 100 + (monotonic_s() - began) * 100 / 60 + 1


async def test_without_redis_and_without_a_share_nothing_limited_is_admitted() -> None:
    """A gateway that has just joined, or that may count as dead, has no part of any limit yet."""
    limiter = RedisLimiter("unix:///nowhere", snapshot=lambda: EMPTY, gateways=gateways_of(0))
    limiter.start()
    refused = await limiter.take(limited_key(requests=100), 0)
    assert not refused.allowed and refused.retry_after_s > 0
    await limiter.close()


async def test_a_slow_redis_counts_as_away_and_comes_back(make: Make, redis_url: str) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    await admitted(limiter, 1, requests=1_000)
    sleeper = threading.Thread(target=_sleep, args=(redis_url,))
    sleeper.start()
    await asyncio.sleep(0.05)
    began = monotonic_s()
    assert await admitted(limiter, 5, requests=1_000) == 5
    assert monotonic_s() - began < REPLY_S_MAX * 4
    assert not limiter.shared
    await asyncio.to_thread(sleeper.join)
    await until(lambda: limiter.shared, BACK_S_MAX)


async def test_a_forgotten_script_is_loaded_again(make: Make, redis_url: str) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    await asyncio.to_thread(_flush_scripts, redis_url)
    assert await admitted(limiter, 2, requests=10) == 2
    await until(lambda: limiter.shared, BACK_S_MAX)
    assert await admitted(limiter, 10, requests=10) == 8


async def test_buckets_vanish_when_they_are_full_again(make: Make, redis_url: str) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    await admitted(limiter, 1, requests=600)
    assert await asyncio.to_thread(_names, redis_url)
    await asyncio.sleep(0.2)
    assert not await asyncio.to_thread(_names, redis_url)


def _sleep(url: str) -> None:
    with redis.Redis.from_url(url) as connection:
        connection.execute_command("DEBUG", "SLEEP", "0.6")


def _flush_scripts(url: str) -> None:
    with redis.Redis.from_url(url) as connection:
        connection.script_flush()


def _names(url: str) -> list[bytes]:
    with redis.Redis.from_url(url) as connection:
        return list(connection.scan_iter("sluice:{rate}:key:*"))


async def test_all_flights_there_can_be_are_stated_in_one_call(make: Make, redis_url: str) -> None:
    """After Redis was away; takes that waited together had passed the bound of what is counted."""
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    keys = [limited_key(at_once=2, name=n) for n in range(TAKES_WAITING_MAX)]
    taken = await asyncio.gather(*(limiter.take(key, 0) for key in keys))
    assert all(answer.allowed for answer in taken)
    assert not (await limiter.take(limited_key(at_once=2, name=-1), 0)).allowed
    with redis.Redis.from_url(redis_url) as door:
        door.client_kill_filter(_type="normal", skipme=True)
    await until(lambda: not limiter.shared, BACK_S_MAX)
    await until(lambda: limiter.shared, BACK_S_MAX)
    assert [room.remaining for room in await limiter.look(keys[-1])] == [1]
    assert limiter.shared
    for answer in taken:
        limiter.release(answer)
    assert [room.remaining for room in await limiter.look(keys[0])] == [2]
