"""Size classes that gateways share through Redis: told, looked up, forgotten, bounded, away."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controlplane.bridge.limits import sizes
from controlplane.bridge.limits.sizes import RedisSizes
from controlplane.gateway.nodes.measured.times import LearnedBound
from tests.support.waiting import until

PATIENT_S = 30.0
A, B = bytes(range(16)), bytes(range(1, 17))


@pytest.fixture
async def two(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[RedisSizes, RedisSizes]]:
    """Those of two gateways, both connected."""
    monkeypatch.setattr(LearnedBound, "seconds", PATIENT_S)
    made = RedisSizes(redis_url), RedisSizes(redis_url)
    for each in made:
        each.start()
    await until(lambda: all(each._link is not None for each in made))
    yield made
    for each in made:
        await each.close()


async def test_what_one_notes_the_other_knows_until_it_is_forgotten(
    two: tuple[RedisSizes, RedisSizes],
) -> None:
    here, there = two
    here.note(A, "medium", 60.0)
    here.note(B, "large", 60.0)
    assert await here.look([A, B, bytes(16)]) == ["medium", "large", None]
    assert await there.look([A, B]) == ["medium", "large"]
    here.note(A, None, 0.0)
    await here.look([A])
    assert await there.look([A, B]) == [None, "large"]
    here.note(B, None, 0.0)
    await here.look([])


async def test_a_slot_holds_the_digest_that_is_good_for_longest(
    two: tuple[RedisSizes, RedisSizes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "SLOTS", 1)
    here, _ = two
    here.note(A, "small", 60.0)
    assert await here.look([A, B]) == ["small", None]
    here.note(B, "large", 60.0)
    assert await here.look([A, B]) == [None, "large"]
    # A rating stays beside a retry, and only its own digest takes it away.
    here.note(A, "small", 1.0)
    here.note(A, None, 0.0)
    assert await here.look([A, B]) == [None, "large"]
    here.note(B, None, 0.0)
    assert await here.look([A, B]) == [None, None]


async def test_what_is_noted_ends_with_its_time(two: tuple[RedisSizes, RedisSizes]) -> None:
    here, _ = two
    here.note(A, "small", 0.001)

    async def gone() -> bool:
        return await here.look([A]) == [None]

    await until(gone)


async def test_without_redis_nothing_is_known_and_nobody_waits() -> None:
    alone = RedisSizes("unix:///nowhere")
    alone.start()
    assert not alone.note(A, "small", 60.0)
    assert await alone.look([A, B]) is None
    assert not alone._notes
    await alone.close()
