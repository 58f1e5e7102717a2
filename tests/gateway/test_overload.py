"""More requests than room, and a gateway that ends: waits, honest refusals, resolved holds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.gateway.s4_route.queue import waiting as waiting_requests
from controlplane.kernel import rules
from tests.support.faults import STREAM, only_settlement, open_jobs, raw_post
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest
from tests.support.nodes import hand_node, named_node
from tests.support.serving import Serving
from tests.support.waiting import until


async def test_requests_wait_for_credits_and_are_served_in_order(bare: Serving) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model, credits=1) as node:
        asked = []
        for number in range(4):
            message = {"role": "user", "content": f"{number}"}
            asked.append(asyncio.create_task(bare.chat(messages=[message], max_tokens=1)))
            await until(lambda: len(under_test.world.waiting) == max(0, len(asked) - 1))
            await until(lambda: node.jobs)
        served = []
        for _ in range(4):
            job = await node.job()
            served.append(job.tokens[0])
            await node.answer(job, "x", finish="length")
        assert served == sorted(served)
        answers = await asyncio.gather(*asked)
        assert [answer.status_code for answer in answers] == [200] * 4
        await under_test.at_rest()
    slowest = max(under_test.recorder.records, key=lambda record: record.total_us)
    assert slowest.spans


async def test_full_room_sheds_at_once(bare: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_requests, "WAITING_MAX", 2)
    under_test = bare.under_test
    async with hand_node(under_test, bare.model, credits=1) as node:
        running = asyncio.create_task(bare.chat(max_tokens=1))
        job = await node.job()
        waiting = [asyncio.create_task(bare.chat(max_tokens=1)) for _ in range(2)]
        await until(lambda: len(under_test.world.waiting) == 2)
        refused = await bare.chat()
        assert refused.status_code == 503
        assert len(under_test.world.waiting) == 2
        assert refused.json()["error"]["code"] == "server_is_overloaded"
        assert int(refused.headers["retry-after"]) > 0
        await until(lambda: under_test.recorder.records)
        (record,) = under_test.recorder.records
        assert msgspec.json.decode(record.receipt)["lack"] == "full"
        for _ in range(3):
            await node.answer(job, "x", finish="length")
            job = await node.job() if node.jobs or len(under_test.world.waiting) else job
        assert [(await each).status_code for each in (running, *waiting)] == [200] * 3
        await under_test.at_rest()


async def test_wait_is_bounded(bare: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "QUEUE_S_DEFAULT", 0.2)
    async with hand_node(bare.under_test, bare.model, credits=1) as node:
        running = asyncio.create_task(bare.chat(max_tokens=1))
        job = await node.job()
        answer = await bare.chat()
        assert answer.json()["error"]["code"] == "server_is_overloaded"
        await node.answer(job, "x", finish="length")
        assert (await running).status_code == 200
        await bare.under_test.at_rest()


async def test_full_nodes_of_one_model_do_not_hold_up_another(bare: Serving) -> None:
    under_test = bare.under_test
    models = dict(under_test.keys.current.models)
    models["other"] = msgspec.structs.replace(models[MODEL], name="other")
    under_test.keys.current = msgspec.structs.replace(under_test.keys.current, models=models)
    async with (
        hand_node(under_test, bare.model, credits=1) as node,
        named_node(under_test, bare.model, "free", name="other"),
    ):
        await until(lambda: "other" in under_test.fleet.models())
        running = asyncio.create_task(bare.chat(max_tokens=1))
        job = await node.job()
        waiting = asyncio.create_task(bare.chat(max_tokens=1))
        await until(lambda: len(under_test.world.waiting) == 1)
        async with asyncio.timeout(2):
            assert (await bare.chat(model="other")).status_code == 200
        await node.answer(job, "x", finish="length")
        await node.answer(await node.job(), "x", finish="length")
        assert [(await each).status_code for each in (running, waiting)] == [200, 200]
        await under_test.at_rest()


async def test_node_that_joins_serves_those_who_wait(bare: Serving) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model, credits=1) as node:
        running = asyncio.create_task(bare.chat(max_tokens=1))
        job = await node.job()
        waiting = asyncio.create_task(bare.chat())
        await until(lambda: len(under_test.world.waiting) == 1)
        async with named_node(under_test, bare.model, "second"):
            assert (await waiting).headers["x-sluice-node"] == "second"
            await under_test_quiet(under_test)
        await node.answer(job, "x", finish="length")
        assert (await running).status_code == 200
        await under_test.at_rest()


async def under_test_quiet(under_test: GatewayUnderTest) -> None:
    """Only one request is left."""
    await until(lambda: len(under_test.ledger.open) == 1)


@pytest.mark.parametrize("state", ["waiting", "dispatched", "streaming"])
async def test_cancelled_task_still_resolves_its_hold(bare: Serving, state: str) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model, credits=1) as node:
        others = []
        if state == "waiting":
            others.append(asyncio.create_task(bare.chat(max_tokens=1)))
            held = await node.job()
        with raw_post(under_test.port, STREAM):
            if state == "waiting":
                await until(lambda: len(under_test.world.waiting) == 1)
            else:
                job = await node.job()
            if state == "streaming":
                await node.answer(job, "abc")
                await until(lambda: open_jobs(under_test)[0].stream.completion_tokens == 3)
            newest = max(serving_tasks(), key=lambda task: int(task.get_name().split("-")[-1]))
            newest.cancel()
            if state == "waiting":
                await until(lambda: len(under_test.ledger.settled) == 1)
                await node.answer(held, "x", finish="length")
                assert (await others[0]).status_code == 200
            else:
                await until(lambda: node.cancelled == [job.request])
                await node.answer(job, finish="cancelled")
            await under_test.at_rest()
    charged = min(each.counts.output for each in under_test.ledger.settled.values())
    assert charged == (3 if state == "streaming" else 0)


def serving_tasks() -> list[asyncio.Task[Any]]:
    """Tasks in which uvicorn serves a request."""
    return [task for task in asyncio.all_tasks() if "run_asgi" in repr(task.get_coro())]


async def test_bug_in_a_stage_is_an_answer_and_a_released_hold(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("controlplane.gateway.tasks.generation.tokenize", broken)
    async with named_node(bare.under_test, bare.model, "node"):
        answer = await bare.chat()
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "internal_error"
        assert "ZeroDivision" not in answer.text
        await bare.under_test.at_rest()
    assert only_settlement(bare.under_test).output == 0


async def test_nothing_watches_a_client_after_its_answer(bare: Serving, model: Path) -> None:
    async with named_node(bare.under_test, model, "node"):
        for _ in range(3):
            await bare.chat()
        await bare.under_test.at_rest()
        await until(lambda: not bare.under_test.world._tasks)
