"""Records of processes in a real Redis: their age, their bounds, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import msgspec
import pytest
from django.conf import settings
from django.test import override_settings
from redis import Redis

from controlplane.core.jobs import lives
from controlplane.core.jobs.heartbeat import ALIVE_S, Heartbeat, is_alive
from controlplane.core.jobs.lives import (
    KEPT_S,
    RECORD_BYTES_MAX,
    WORKER,
    Life,
    key_of,
    lives_put,
    lives_read,
    own_life,
)
from controlplane.core.jobs.process import ProcessBeat, ProcessFacts
from tests.support.servers import redis_door
from tests.support.waiting import until

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def door(servers: object) -> Iterator[Redis]:
    with redis_door() as door:
        door.flushall()
        yield door
        door.flushall()


def _known(door: Redis) -> dict[str, lives.Known]:
    return {each.life.name: each for each in lives_read(door)}


def test_a_record_has_the_age_that_redis_says(door: Redis) -> None:
    lives_put([own_life(WORKER, "a", levels={"jobs": (1, 2)}), own_life(WORKER, "b")])
    door.pexpire(key_of(WORKER, "b"), (KEPT_S - 7) * 1_000)
    found = _known(door)
    assert found["a"].age_s < found["b"].age_s
    assert found["b"].age_s >= 7
    assert found["a"].life.levels == {"jobs": (1, 2)}
    assert found["a"].life.version.startswith(lives.RELEASE)


def test_whoever_ends_as_asked_is_forgotten_at_once(door: Redis) -> None:
    lives_put([own_life(WORKER, "a"), own_life(WORKER, "b")])
    lives_put([own_life(WORKER, "a")], drop=True)
    assert list(_known(door)) == ["b"]
    # What has gone by itself leaves a name behind, which tells nothing.
    door.delete(key_of(WORKER, "b"))
    assert _known(door) == {}


def test_records_are_bounded_in_size_and_number(
    door: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lives, "RECORDS_MAX", 3)
    lives_put([Life(kind="web", name="wide", problem="x" * RECORD_BYTES_MAX)])
    assert _known(door)["wide"].life.problem == "too much to tell"
    lives_put([own_life(WORKER, str(number)) for number in range(5)])
    assert len(_known(door)) == 3


def test_a_record_of_another_release_is_left_out(door: Redis) -> None:
    lives_put([own_life(WORKER, "a"), own_life(WORKER, "b")])
    door.set(key_of(WORKER, "a"), msgspec.json.encode({"another": "shape"}), ex=KEPT_S)
    assert list(_known(door)) == ["b"]


def test_a_process_counts_as_dead_long_before_its_record_goes(door: Redis) -> None:
    heartbeat = Heartbeat(WORKER)
    assert not is_alive(WORKER, "a")
    heartbeat.give("a")
    assert is_alive(WORKER, "a")
    door.expire(key_of(WORKER, "a"), KEPT_S - ALIVE_S - 1)
    assert not is_alive(WORKER, "a")
    heartbeat.give("a")
    assert not is_alive(WORKER, "a"), "one was given just now"


async def test_a_serving_process_beats_and_takes_its_record_away(door: Redis) -> None:
    counts = count(0, 10)

    def tell() -> ProcessFacts:
        return ProcessFacts({"queue": (1, 4)}, {"requests": next(counts)}, problem="", instance="i")

    with override_settings(ADVERTISE_URL="ws://gw.example.org:80/fleet"):
        beat = ProcessBeat("gateway", tell)
        beat.start()
        name = "gw.example.org:80"
        await until(lambda: name in _known(door) and _known(door)[name].life.rates["requests"] > 0)
        life = _known(door)[name].life
        assert (life.kind, life.instance, life.levels) == ("gateway", "i", {"queue": (1, 4)})
        await beat.stop()
    assert _known(door) == {}


async def test_without_redis_nothing_is_given_and_nothing_fails(door: Redis) -> None:
    with override_settings(REDIS_URL=NOWHERE):
        beat = ProcessBeat("web", lambda: ProcessFacts({}))
        beat.start()
        lives_put([own_life(WORKER, "a")])
        await asyncio.sleep(0)
        await beat.stop()
    assert settings.REDIS_URL != NOWHERE
    assert _known(door) == {}
