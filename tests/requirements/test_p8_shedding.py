"""P8: never a silent wait. What cannot be served in time is refused at once, lowest first, and the
answer says what is wrong, what was tried and when to come back; what waits is told how long it did.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from typing import Any

import httpx2
import msgspec
import pytest

from controlplane.gateway.s4_route.queue import waiting as waiting_requests
from controlplane.gateway.s4_route.queue.model_queue import RETURNS_MIN
from controlplane.gateway.snapshot import ProjectRecord
from controlplane.kernel.ids import public_request
from controlplane.kernel.rules import PRIORITY_HIGH, PRIORITY_LOW, RouteRule, Step, Target
from tests.support.fleet import MODEL
from tests.support.nodes import HandNode, hand_node
from tests.support.ports import make_key
from tests.support.serving import Serving
from tests.support.waiting import until

OTHER_PROJECT = "c" * 32
OTHER_ORGANIZATION = "d" * 32
ERROR_KEYS = {"message", "type", "param", "code", "degraded"}


def degraded(answer: httpx2.Response, code: str) -> dict[str, Any]:
    """The structured part of a refusal that is honest in every header."""
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, code)
    assert set(error) == ERROR_KEYS
    told: dict[str, Any] = error["degraded"]
    assert answer.headers["x-should-retry"] == "true"
    assert int(answer.headers["retry-after-ms"]) == told["retry_after_ms"]
    assert int(answer.headers["retry-after"]) == ceil(told["retry_after_ms"] / 1000)
    assert 1_000 <= told["retry_after_ms"] <= 60_000
    return told


def route(bare: Serving, queue_s: float) -> None:
    """Everything waits so long, and no longer."""
    step = Step(targets=(Target(model=MODEL),), queue_s=queue_s)
    rules = (RouteRule(name="all", version=1, steps=(step,)),)
    keys = bare.under_test.keys
    keys.current = msgspec.structs.replace(keys.current, rules=rules)


def ask_as(bare: Serving, **changes: object) -> asyncio.Task[httpx2.Response]:
    """A request by a key of its own, under way."""
    text = f"sk_{changes}"
    bare.under_test.keys.keys[text] = make_key(**changes)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}], "max_tokens": 1}
    headers = {"authorization": f"Bearer {text}"}
    return asyncio.create_task(bare.client.post("/v1/chat/completions", json=body, headers=headers))


@asynccontextmanager
async def busy_node(bare: Serving) -> AsyncIterator[HandNode]:
    """A node whose one credit is taken; all that was asked is served at the end."""
    async with hand_node(bare.under_test, bare.model, credits=1) as node:
        running = asyncio.create_task(bare.chat(max_tokens=1))
        await until(lambda: node.jobs)
        yield node
        while bare.under_test.ledger.open:
            await node.answer(await node.job(), "x", finish="length")
            await until(lambda: node.jobs or not bare.under_test.ledger.open)
        assert (await running).status_code == 200
        await bare.under_test.at_rest()


async def test_no_node_is_said_at_once(bare: Serving) -> None:
    told = degraded(await bare.chat(), "no_node_available")
    assert (told["state"], told["reason"], told["estimated_wait_ms"]) == (
        "unavailable",
        "none",
        None,
    )
    assert told["steps"] == [
        {"step": 1, "model": MODEL, "pool": "default", "reason": "no_node_available"}
    ]


async def test_full_queue_is_said_at_once(bare: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_requests, "WAITING_MAX", 0)
    async with busy_node(bare):
        answer = await bare.chat()
        told = degraded(answer, "server_is_overloaded")
        assert (told["state"], told["reason"]) == ("overloaded", "full")
        assert told["steps"] == [{"step": 1, "model": MODEL, "pool": "default", "reason": "full"}]
        # Refused at the door: it has not waited, so there is nothing to tell of a wait.
        assert "x-sluice-queue-ms" not in answer.headers


async def test_a_wait_ends_after_the_time_of_its_route_and_says_how_long_it_was(
    bare: Serving,
) -> None:
    route(bare, queue_s=0.05)
    async with busy_node(bare):
        answer = await bare.chat()
        told = degraded(answer, "server_is_overloaded")
        assert (told["reason"], told["queue_position"]) == ("late", 0)
        assert int(answer.headers["x-sluice-queue-ms"]) >= 50


async def test_who_would_wait_too_long_is_refused_at_arrival_with_the_estimate(
    bare: Serving,
) -> None:
    under_test = bare.under_test
    async with busy_node(bare) as node:
        asked = [asyncio.create_task(bare.chat(max_tokens=1)) for _ in range(RETURNS_MIN)]
        await until(lambda: len(under_test.world.waiting) == RETURNS_MIN)
        for _ in range(RETURNS_MIN):
            await node.answer(await node.job(), "x", finish="length")
            await until(lambda: node.jobs)
        assert len(under_test.world.waiting) == 0
        asked.append(asyncio.create_task(bare.chat(max_tokens=1)))
        await until(lambda: len(under_test.world.waiting) == 1)
        route(bare, queue_s=1e-6)
        answer = await bare.chat()
        told = degraded(answer, "server_is_overloaded")
        assert (told["reason"], told["queue_position"]) == ("late", 1)
        assert told["estimated_wait_ms"] is not None
        assert "x-sluice-queue-ms" not in answer.headers
    assert {each.status_code for each in await asyncio.gather(*asked)} == {200}


async def test_the_lowest_priority_makes_way_at_once(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_requests, "WAITING_MAX", 1)
    async with busy_node(bare):
        low = ask_as(bare, priority=PRIORITY_LOW)
        await until(lambda: len(bare.under_test.world.waiting) == 1)
        high = ask_as(bare, priority=PRIORITY_HIGH)
        told = degraded(await low, "server_is_overloaded")
        assert told["reason"] == "full"
        lower = await ask_as(bare, priority=PRIORITY_LOW)
        assert degraded(lower, "server_is_overloaded")["reason"] == "full"
        assert not high.done()
    assert (await high).status_code == 200


async def test_a_flood_of_one_tenant_costs_another_one_job(bare: Serving) -> None:
    under_test = bare.under_test
    other = ProjectRecord(
        id=OTHER_PROJECT, organization=OTHER_ORGANIZATION, safety="off", salt=b"other"
    )
    projects = {**under_test.keys.current.projects, OTHER_PROJECT: other}
    under_test.keys.current = msgspec.structs.replace(under_test.keys.current, projects=projects)
    async with busy_node(bare) as node:
        flood = [asyncio.create_task(bare.chat(max_tokens=1)) for _ in range(20)]
        await until(lambda: len(under_test.world.waiting) == 20)
        single = ask_as(bare, organization=OTHER_ORGANIZATION, project=OTHER_PROJECT)
        await until(lambda: len(under_test.world.waiting) == 21)
        for _ in range(3):
            await node.answer(await node.job(), "x", finish="length")
        assert (await single).status_code == 200
        assert sum(task.done() for task in flood) <= 2
    await asyncio.gather(*flood)


async def test_position_and_wait_are_told_and_kept(bare: Serving) -> None:
    async with busy_node(bare):
        first = asyncio.create_task(bare.chat(max_tokens=1))
        await until(lambda: len(bare.under_test.world.waiting) == 1)
        second = asyncio.create_task(bare.chat(max_tokens=1, stream=True))
        await until(lambda: len(bare.under_test.world.waiting) == 2)
    waits = [int((await each).headers["x-sluice-queue-ms"]) for each in (first, second)]
    records = {
        public_request(record.request): record for record in bare.under_test.recorder.records
    }
    for place, (answer, wait_ms) in enumerate(zip((await first, await second), waits, strict=True)):
        record = records.pop(answer.headers["x-request-id"])
        queue = json.loads(record.receipt)["queue"]
        assert queue == {"wait_ms": wait_ms, "position": place, "estimate_ms": None}
    (served_at_once,) = records.values()
    assert "queue" not in json.loads(served_at_once.receipt)
