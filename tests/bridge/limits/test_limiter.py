"""The Limiter port on a real Redis: exact under races, divided without Redis, never over."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable

import pytest
import redis

from controlplane.bridge.limits.limiter import TAKES_WAITING_MAX, UNLIMITED, RedisLimiter
from controlplane.bridge.limits.redis_link import REPLY
from controlplane.gateway.nodes.measured.times import LearnedBound
from controlplane.gateway.snapshot import EMPTY, Limits, ProjectRecord, Snapshot
from controlplane.kernel.clock import monotonic_s
from tests.support.racer import gateways_of, limited_key
from tests.support.servers import Servers, redis_door
from tests.support.waiting import until

PROJECT = "b" * 32
BACK_S_MAX = 60.0
# What is counted is asked here: on a busy machine Redis must not count as away by chance.
PATIENT_S = 30.0
# How long Redis sleeps where it shall count as away: many times the wait for its reply.
SLEEPS_S = 1.0
Make = Callable[..., RedisLimiter]


@pytest.fixture
async def make(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    monkeypatch.setattr(LearnedBound, "seconds", PATIENT_S)
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


class Leak:
    """What a bucket has given back at most since this was made."""

    def __init__(self, per_min: int) -> None:
        self._per_s = per_min / 60
        self._began_s = monotonic_s()

    @property
    def units(self) -> float:
        """Requests or tokens."""
        return (monotonic_s() - self._began_s) * self._per_s

    @property
    def seconds(self) -> float:
        """The time of it."""
        return monotonic_s() - self._began_s


async def admitted(limiter: RedisLimiter, times: int, **limits: int | None) -> int:
    key = limited_key(**({"requests": None} | limits))  # type: ignore[arg-type]
    return sum([(await limiter.take(key, 0)).allowed for _ in range(times)])


async def test_requests_are_counted_and_refused_with_every_figure(make: Make) -> None:
    limiter = make()
    assert await limiter.wait_shared(BACK_S_MAX)
    key = limited_key(requests=3, tokens=1_000)
    leak = Leak(3)
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
    assert 19 - leak.seconds < refused.retry_after_s <= 21


async def test_tokens_beyond_the_estimate_are_counted_before_more_are_admitted(
    make: Make, servers: Servers
) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    key = limited_key(requests=None, tokens=1_000)
    leak = Leak(1_000)
    assert (await limiter.take(key, 100)).allowed
    limiter.correct(key, 1_400)
    refused = await limiter.take(key, 1)
    assert not refused.allowed and refused.rooms[0].remaining == 0
    # 501 of 1,500 have to leak.
    assert 30 - leak.seconds < refused.retry_after_s <= 31
    servers.redis.kill()
    try:
        await until(lambda: not limiter.shared, BACK_S_MAX)
        other = limited_key(requests=None, tokens=1_000, name=2)
        assert not (await limiter.take(key, 1)).allowed, "it goes on from the level seen last"
        assert (await limiter.take(other, 100)).allowed
        limiter.correct(other, 1_400)
        assert not (await limiter.take(other, 1)).allowed
    finally:
        await asyncio.to_thread(servers.redis.start)
    await until(lambda: limiter.shared, BACK_S_MAX)
    assert not (await limiter.take(other, 1)).allowed, "Redis was told"


async def test_tokens_are_counted_and_given_back(make: Make) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    key = limited_key(requests=None, tokens=1_000)
    leak = Leak(1_000)
    assert (await limiter.take(key, 900)).allowed
    refused = await limiter.take(key, 300)
    assert not refused.allowed and refused.refused_by is not None
    assert [room.dimension for room in refused.rooms] == ["tokens"]
    assert 11 - leak.seconds < refused.retry_after_s <= 13
    limiter.correct(key, -800)
    accepted = await limiter.take(key, 300)
    assert accepted.allowed
    assert 600 <= accepted.rooms[0].remaining <= 601 + leak.units


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
    leak = Leak(60)
    answers = await asyncio.gather(*(limiters[n % 3].take(key, 0) for n in range(600)))
    assert 60 <= sum(answer.allowed for answer in answers) <= 60 + leak.units


async def test_racing_processes_never_pass_the_limit(redis_url: str) -> None:
    limit, takes, processes = 300, 400, 4
    racers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.racer"),
            *(redis_url, str(limit), str(takes)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        for _ in range(processes)
    ]
    for racer in racers:
        assert racer.stdout is not None
        # Its log comes the same way.
        while await racer.stdout.readline() != b"ready\n":
            assert racer.returncode is None
    # Only from here on does the bucket refill: 5 a second, while they race for half a second.
    leak = Leak(limit)
    outputs = await asyncio.gather(*(racer.communicate(b"go\n") for racer in racers))
    total = sum(int(out.splitlines()[-1]) for out, _ in outputs)
    assert limit <= total <= limit + leak.units


async def test_a_gateway_alone_goes_on_where_redis_was_and_tells_it(
    make: Make, servers: Servers
) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    leak = Leak(100)
    assert await admitted(limiter, 10, requests=100) == 10
    servers.redis.kill()
    try:
        await until(lambda: not limiter.shared, BACK_S_MAX)
        rest = await admitted(limiter, 120, requests=100)
        assert 90 <= rest <= 90 + leak.units
        leak = Leak(100)
    finally:
        await asyncio.to_thread(servers.redis.start)
    await until(lambda: limiter.shared, BACK_S_MAX)
    # Redis came back empty, and yet knows that nothing is left but what has leaked since.
    assert await admitted(limiter, 50, requests=100) <= 1 + leak.units


async def test_several_gateways_without_redis_never_pass_the_limit_together(
    make: Make, servers: Servers
) -> None:
    limiters = [make(2), make(2)]
    for limiter in limiters:
        await limiter.wait_shared(BACK_S_MAX)
    # The first sees only its own; what the second uses afterwards must count all the same.
    leak = Leak(100)
    used = [await admitted(limiter, 40, requests=100) for limiter in limiters]
    servers.redis.kill()
    try:
        await until(lambda: not any(one.shared for one in limiters), BACK_S_MAX)
        # Each share refills from nothing: 50 a minute.
        half = Leak(50)
        await asyncio.sleep(1.3)
        used += [await admitted(limiter, 100, requests=100) for limiter in limiters]
        assert all(1 <= count <= 1 + half.units for count in used[2:])
    finally:
        await asyncio.to_thread(servers.redis.start)
    await until(lambda: all(one.shared for one in limiters), BACK_S_MAX)
    used += [await admitted(limiter, 100, requests=100) for limiter in limiters]
    assert sum(used) <= 101 + leak.units


async def test_without_redis_and_without_a_share_nothing_limited_is_admitted() -> None:
    """A gateway that has just joined, or that may count as dead, has no part of any limit yet."""
    limiter = RedisLimiter("unix:///nowhere", snapshot=lambda: EMPTY, gateways=gateways_of(0))
    limiter.start()
    refused = await limiter.take(limited_key(requests=100), 0)
    assert not refused.allowed and refused.retry_after_s > 0
    await limiter.close()


async def test_a_slow_redis_counts_as_away_and_comes_back(
    make: Make, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    await admitted(limiter, 1, requests=1_000)
    monkeypatch.setattr(LearnedBound, "seconds", REPLY.floor_s)
    sleeper = threading.Thread(
        target=_sleep,
    )
    sleeper.start()
    longest_s = 0.0

    async def away() -> bool:
        nonlocal longest_s
        began = monotonic_s()
        assert await admitted(limiter, 1, requests=1_000) == 1
        longest_s = max(longest_s, monotonic_s() - began)
        return not limiter.shared

    await until(away)
    assert longest_s < SLEEPS_S
    await asyncio.to_thread(sleeper.join)
    await until(lambda: limiter.shared, BACK_S_MAX)


async def test_a_forgotten_script_is_loaded_again(make: Make, redis_url: str) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    await asyncio.to_thread(_flush_scripts)
    assert await admitted(limiter, 2, requests=10) == 2
    await until(lambda: limiter.shared, BACK_S_MAX)
    assert await admitted(limiter, 10, requests=10) == 8


async def test_buckets_vanish_when_they_are_full_again(make: Make, redis_url: str) -> None:
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    await admitted(limiter, 1, requests=6)
    (lives_ms,) = await asyncio.to_thread(_lives_ms, redis_url)
    # One of six a minute is there again in ten seconds.
    assert 0 < lives_ms <= 10_001


def _sleep() -> None:
    with redis_door() as door:
        door.execute_command("DEBUG", "SLEEP", str(SLEEPS_S))


def _flush_scripts() -> None:
    with redis_door() as door:
        door.script_flush()


def _lives_ms(url: str) -> list[int]:
    """For how long each bucket of a key is still kept; -1 for ever."""
    with redis.Redis.from_url(url) as connection:
        names = list(connection.scan_iter("sluice:{rate}:key:*"))
        return [int(connection.pttl(name)) for name in names]


async def test_all_flights_there_can_be_are_stated_in_one_call(make: Make, redis_url: str) -> None:
    """After Redis was away; takes that waited together had passed the bound of what is counted."""
    limiter = make()
    await limiter.wait_shared(BACK_S_MAX)
    keys = [limited_key(at_once=2, name=n) for n in range(TAKES_WAITING_MAX)]
    taken = await asyncio.gather(*(limiter.take(key, 0) for key in keys))
    assert all(answer.allowed for answer in taken)
    assert not (await limiter.take(limited_key(at_once=2, name=-1), 0)).allowed
    with redis_door() as door:
        door.client_kill_filter(_type="normal", skipme=True)
    await until(lambda: not limiter.shared, BACK_S_MAX)
    await until(lambda: limiter.shared, BACK_S_MAX)
    assert [room.remaining for room in await limiter.look(keys[-1])] == [1]
    assert limiter.shared
    for answer in taken:
        limiter.release(answer)
    assert [room.remaining for room in await limiter.look(keys[0])] == [2]
