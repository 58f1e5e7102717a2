"""Served requests are looked at after their answer: what is told, what is sampled, what is not."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest

from controlplane.gateway.after import hygiene
from controlplane.gateway.after.hygiene import CHECKS_AT_ONCE, THINNED, HygieneWatch, Past, marks_of
from controlplane.gateway.openai.chat import parse
from controlplane.gateway.ports import Allowance, Inspected, Room
from controlplane.kernel.insights.hygiene import (
    BACK_OFF_S,
    DEAD_JSON,
    HASTY,
    RETRY,
    RETRY_S,
    TOOLS_S,
    UNBOUNDED,
)
from tests.support.fleet import MODEL
from tests.support.ports import KEY_ID, MemoryHygiene
from tests.support.serving import Serving

DEAD = json.dumps({"name": "Harbour", "note": None, "tags": [], "rooms": [1, 2]}, indent=8)


def body(text: str, **more: Any) -> dict[str, Any]:
    """A chat of one message."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


async def told(serving: Serving, asked: dict[str, Any], status: int = 200) -> list[Inspected]:
    """What has been told once it was answered."""
    answer = await serving.client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == status, answer.text
    await serving.under_test.at_rest()
    return serving.under_test.waste.seen


async def test_findings_are_told_with_what_they_cost_and_no_text(serving: Serving) -> None:
    seen = await told(serving, body(f"{DEAD} A pool?", max_tokens=4))
    (one,) = seen
    assert (one.key, one.model, one.looked) == (KEY_ID, MODEL, True)
    (dead,) = one.findings
    assert dead.kind == DEAD_JSON and 0 < dead.tokens < one.tokens and 0 < dead.nano < one.nano
    assert "Harbour" not in msgspec.json.encode(one).decode()
    await told(serving, body(f"{DEAD} A pool?", max_tokens=4))
    assert [each.kind for each in seen[1].findings] == [DEAD_JSON, RETRY]


async def test_who_comes_again_at_once_after_a_refusal_is_told_apart(serving: Serving) -> None:
    limiter = serving.under_test.limiter
    room = Room("requests", "key", 60, 0, 20.0)
    limiter.answer = Allowance(allowed=False, rooms=(room,), refused_by=room, retry_after_s=7.0)
    await told(serving, body("Hello", max_tokens=4), status=429)
    seen = await told(serving, body("Hello", max_tokens=4), status=429)
    assert [(one.tokens, one.nano, one.looked) for one in seen] == [(0, 0, True)] * 2
    assert [[each.kind for each in one.findings] for one in seen] == [[], [HASTY]]


async def test_a_refused_request_is_not_counted(serving: Serving) -> None:
    assert await told(serving, body("x" * 40_000), status=400) == []


async def test_streams_are_looked_at_too(serving: Serving) -> None:
    seen = await told(serving, body("Hello there", max_tokens=3, stream=True))
    assert [(each.looked, each.findings) for each in seen] == [(True, ())]
    assert UNBOUNDED not in {each.kind for each in seen[0].findings}


class Clock:
    """Seconds that a test moves on."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(hygiene, "monotonic_s", made)
    return made


def test_beyond_the_rate_nothing_is_looked_at(clock: Clock) -> None:
    watch = HygieneWatch(MemoryHygiene())
    asks = [parse(json.dumps(body("x" * place)).encode()) for place in range(1_000)]
    taken = [ask for ask in asks if watch.takes(KEY_ID, ask)]
    assert CHECKS_AT_ONCE / 2 <= len(taken) <= CHECKS_AT_ONCE
    clock.now_s += 1.0
    again = sum(watch.takes(KEY_ID, ask) for ask in asks)
    assert 0 < again <= hygiene.CHECKS_PER_S + 1


def test_near_the_rate_a_request_and_its_repetition_share_their_fate(clock: Clock) -> None:
    watch = HygieneWatch(MemoryHygiene())
    asks = [parse(json.dumps(body("x" * place)).encode()) for place in range(THINNED * 10)]
    for _ in range(int(CHECKS_AT_ONCE * (1 - hygiene.ROOM_LOW)) + 1):
        assert watch.takes(KEY_ID, asks[0])
    first = [watch.takes(KEY_ID, ask) for ask in asks]
    second = [watch.takes(KEY_ID, ask) for ask in asks]
    assert first == second and 0 < sum(first) < len(asks)


def test_the_same_again_is_seen_for_a_minute_and_by_the_same_key(clock: Clock) -> None:
    watch = HygieneWatch(MemoryHygiene())
    spelled = [json.dumps(body("Hello"), indent=indent).encode() for indent in (None, 2)]
    ask, same = (parse(each) for each in spelled)
    assert not watch.past(marks_of(KEY_ID, ask)).repeated
    watch.remember(marks_of(KEY_ID, ask))
    assert not watch.past(marks_of("f" * 32, ask)).repeated
    clock.now_s += RETRY_S - 1
    # Its length is part of the request, so that the sample is the same; its spelling is not.
    assert watch.past(marks_of(KEY_ID, msgspec.structs.replace(same, bytes=ask.bytes))).repeated
    clock.now_s += 2
    assert not watch.past(marks_of(KEY_ID, ask)).repeated


def test_a_refused_request_that_comes_again_before_its_time_is_hasty(clock: Clock) -> None:
    watch = HygieneWatch(MemoryHygiene())
    ask = parse(json.dumps(body("Hello")).encode())
    watch.remember(marks_of(KEY_ID, ask), wait_s=5.0)
    assert watch.past(marks_of(KEY_ID, ask)) == Past(hasty=True)
    clock.now_s += 5.0
    assert watch.past(marks_of(KEY_ID, ask)) == Past()
    # However short the wait was that it was told.
    watch.remember(marks_of(KEY_ID, ask), wait_s=0.0)
    clock.now_s += BACK_OFF_S / 2
    assert watch.past(marks_of(KEY_ID, ask)).hasty


def test_tools_are_known_again_in_another_conversation(clock: Clock) -> None:
    watch = HygieneWatch(MemoryHygiene())
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    asks = [parse(json.dumps(body(text, tools=[tool])).encode()) for text in ("one", "two")]
    bare = parse(json.dumps(body("three")).encode())
    watch.remember(marks_of(KEY_ID, asks[0]))
    watch.remember(marks_of(KEY_ID, bare))
    chars = len(msgspec.json.encode([tool]))
    assert watch.past(marks_of(KEY_ID, asks[1])) == Past(tools_again=True, tool_chars=chars)
    assert not watch.past(marks_of(KEY_ID, parse(json.dumps(body("four")).encode()))).tools_again
    clock.now_s += TOOLS_S
    assert not watch.past(marks_of(KEY_ID, asks[1])).tools_again


def test_a_large_integer_in_a_tool_is_looked_at_too() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10**30}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    watch = HygieneWatch(MemoryHygiene())
    ask = parse(json.dumps(body("hi", tools=[tool])).encode())
    watch.remember(marks_of(KEY_ID, ask))
    assert watch.past(marks_of(KEY_ID, ask)).repeated


async def test_a_request_is_read_once_and_a_large_one_not_at_all(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def digest(data: bytes, **more: Any) -> hashlib.blake2b:
        read.append(len(data))
        return hashlib.blake2b(data, **more)

    monkeypatch.setattr(hygiene, "blake2b", digest)
    await told(serving, body("Hello", max_tokens=4))
    assert len(read) == 1
    large = parse(json.dumps(body("x" * hygiene.BYTES_MAX)).encode())
    assert marks_of(KEY_ID, large) is None and len(read) == 1
    watch = HygieneWatch(MemoryHygiene())
    watch.remember(None)
    assert watch.past(None) == Past()
