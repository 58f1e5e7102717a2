"""One suite for the Limiter port: on Redis, and in memory as tests of the gateway use it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest
from django.conf import settings

from controlplane.bridge.limits.limiter import RedisLimiter
from controlplane.gateway.nodes.measured.times import LearnedBound
from controlplane.gateway.ports import Limiter
from controlplane.gateway.snapshot import EMPTY, KeyRecord, Limits
from tests.support.ports import MemoryLimiter
from tests.support.racer import gateways_of, limited_key

# On a busy machine Redis must not count as away by chance.
PATIENT_S = 30.0


@pytest.fixture
async def limiter(kind: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Limiter]:
    if kind == "memory":
        yield MemoryLimiter()
        return
    monkeypatch.setattr(LearnedBound, "seconds", PATIENT_S)
    made = RedisLimiter(str(settings.REDIS_URL), snapshot=lambda: EMPTY, gateways=gateways_of(1))
    made.start()
    assert await made.wait_shared(PATIENT_S)
    yield made
    await made.close()


async def test_a_key_without_limits_is_always_allowed(limiter: Limiter) -> None:
    key = limited_key()
    allowance = await limiter.take(key, 10**9)
    assert (allowance.allowed, allowance.rooms, allowance.refused_by) == (True, (), None)
    assert await limiter.look(key) == ()
    limiter.correct(key, -10)
    limiter.release(allowance)


async def test_requests_are_allowed_up_to_the_limit_and_then_refused_by_name(
    limiter: Limiter,
) -> None:
    key = limited_key(a_day=3)
    answers = [await limiter.take(key, 5) for _ in range(4)]
    assert [answer.allowed for answer in answers] == [True, True, True, False]
    assert [answer.rooms[0].remaining for answer in answers] == [2, 1, 0, 0]
    refused = answers[-1].refused_by
    assert refused is not None
    assert (refused.dimension, refused.scope, refused.limit) == ("requests-day", "key", 3)
    assert answers[-1].retry_after_s > 1
    assert answers[0].refused_by is None and answers[0].retry_after_s == 0


async def test_tokens_are_counted_and_given_back(limiter: Limiter) -> None:
    key = limited_key(tokens=1_000)
    assert 100 <= (await limiter.take(key, 900)).rooms[0].remaining <= 101
    assert not (await limiter.take(key, 900)).allowed
    limiter.correct(key, -800)
    accepted = await limiter.take(key, 800)
    assert accepted.allowed and accepted.rooms[0].dimension == "tokens"


async def test_tokens_beyond_the_estimate_are_taken(limiter: Limiter) -> None:
    key = limited_key(tokens=1_000)
    assert (await limiter.take(key, 100)).allowed
    limiter.correct(key, 1_400)
    refused = await limiter.take(key, 1)
    assert not refused.allowed and refused.rooms[0].remaining == 0
    assert refused.retry_after_s > 29


async def test_a_cost_above_the_whole_limit_never_fits(limiter: Limiter) -> None:
    assert not (await limiter.take(limited_key(tokens=100), 101)).allowed


async def test_a_refused_request_takes_nothing_from_its_other_limits(limiter: Limiter) -> None:
    key = limited_key(a_day=10, tokens=100)
    for _ in range(5):
        assert not (await limiter.take(key, 101)).allowed
    rooms = {room.dimension: room for room in (await limiter.take(key, 1)).rooms}
    assert rooms["requests-day"].remaining == 9


async def test_looking_counts_nothing(limiter: Limiter) -> None:
    key = limited_key(a_day=2)
    for _ in range(3):
        (room,) = await limiter.look(key)
        assert (room.dimension, room.remaining) == ("requests-day", 2)


async def test_what_is_under_way_is_counted_until_it_is_released(limiter: Limiter) -> None:
    key = limited_key(at_once=1)
    first = await limiter.take(key, 1)
    refused = await limiter.take(key, 1)
    assert first.allowed and first.flights and not refused.allowed
    assert refused.refused_by is not None and refused.refused_by.dimension == "concurrency"
    assert refused.flights == ()
    limiter.release(first)
    assert (await limiter.take(key, 1)).allowed


async def test_keys_are_counted_apart(limiter: Limiter) -> None:
    for name in (1, 2):
        assert (await limiter.take(limited_key(a_day=1, name=name), 1)).allowed
    assert not (await limiter.take(limited_key(a_day=1, name=1), 1)).allowed


async def test_end_users_and_models_are_counted_apart(limiter: Limiter) -> None:
    once = Limits(requests_per_day=1)
    limits = Limits(requests_per_day=5, per_user=once, models={"small": once})
    key = msgspec.structs.replace(limited_key(), limits=limits)

    def asks(model: str, user: str) -> KeyRecord:
        return msgspec.structs.replace(key, counted=(tuple(model.split()), user))

    asked = [("big", "ann"), ("big", "ann"), ("big", "bob"), ("small", ""), ("small", "eve")]
    # Of several all have to have room.
    asked += [("big small", "joe")]
    answers = [await limiter.take(asks(*each), 1) for each in asked]
    scopes = [each.refused_by and each.refused_by.scope for each in answers]
    assert scopes == [None, "user", None, None, "model", "model"]
    (room,) = await limiter.look(key)
    assert (room.scope, room.remaining) == ("key", 2)
