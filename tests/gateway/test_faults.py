"""What can go wrong on the way: each ending has one charge, and leaves nothing open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from controlplane.gateway import app, call
from controlplane.gateway.s4_route import saturation
from controlplane.kernel.price import TokenCounts, charge_nano
from inference.contract.codec import encode
from inference.contract.frames import FRAME_BYTES_MAX, Draining
from tests.support.fleet import MODEL, until
from tests.support.gateway import GatewayUnderTest
from tests.support.nodes import hand_node, hello_of, let_in, named_node
from tests.support.ports import KEY, PRICE, make_snapshot
from tests.support.serving import CHAT_PATH, Serving

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}], "max_tokens": 100}
STREAM = {**BODY, "stream": True}


@contextlib.asynccontextmanager
async def streaming(serving: Serving, **fields: Any) -> AsyncIterator[httpx2.Response]:
    """An open stream."""
    async with serving.client.stream("POST", CHAT_PATH, json={**STREAM, **fields}) as answer:
        yield answer


async def first_text(answer: httpx2.Response) -> AsyncIterator[str]:
    """The stream's lines, once a token has come."""
    lines = answer.aiter_lines()
    async for line in lines:
        if '"content":"' in line and '"content":""' not in line:
            return lines
    raise AssertionError("the stream ended before its first token")


def raw_post(port: int, body: dict[str, object], *, receive_bytes: int = 2048) -> socket.socket:
    """A client that has sent its request and reads nothing."""
    data = msgspec.json.encode(body)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.connect(("127.0.0.1", port))
    head = (
        f"POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    client.sendall(head.encode() + data)
    return client


def only_settlement(under_test: GatewayUnderTest) -> TokenCounts:
    """The counts of the one charge, whose amount must be theirs."""
    (settlement,) = under_test.ledger.settled.values()
    assert settlement.amount_nano == charge_nano(PRICE, settlement.counts)
    return settlement.counts


def open_jobs(under_test: GatewayUnderTest) -> list[Any]:
    """Jobs on all nodes."""
    return [
        entry for link in under_test.fleet.nodes().values() for entry in link.jobs._open.values()
    ]


# A node fails.


async def test_node_lost_before_the_first_token_is_replaced(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model, name="first") as first:
        asked = asyncio.create_task(bare.chat())
        await first.job()
        async with named_node(bare.under_test, bare.model, "second"):
            await first.socket.close()
            answer = await asked
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-sluice-node"] == "second"
            await bare.under_test.at_rest()
    assert only_settlement(bare.under_test) == TokenCounts(uncached=4, cached=0, output=6)


async def test_node_that_refuses_is_replaced(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model, name="first") as first:
        asked = asyncio.create_task(bare.chat())
        job = await first.job()
        async with named_node(bare.under_test, bare.model, "second"):
            await first.answer(job, finish="error")
            answer = await asked
            assert (answer.status_code, answer.headers["x-sluice-node"]) == (200, "second")
            await bare.under_test.at_rest()


async def test_node_lost_after_the_first_token_ends_the_stream_with_an_error(
    bare: Serving,
) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        asked = asyncio.create_task(bare.chat(stream=True))
        job = await node.job()
        await node.answer(job, "abc")
        await node.answer(job, "de")
        await until(lambda: open_jobs(bare.under_test)[0].stream.completion_tokens == 5)
        await node.socket.close()
        answer = await asked
    assert answer.status_code == 200
    assert '"code":"node_lost"' in answer.text and "[DONE]" not in answer.text
    await bare.under_test.at_rest()
    assert only_settlement(bare.under_test) == TokenCounts(uncached=4, cached=0, output=5)
    (record,) = bare.under_test.recorder.records
    assert (record.status, record.error_code, record.output_tokens) == (500, "node_lost", 5)


async def test_node_lost_behind_a_whole_answer_starts_over(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model, name="first") as first:
        asked = asyncio.create_task(bare.chat())
        await first.answer(await first.job(), "xyz")
        async with named_node(bare.under_test, bare.model, "second"):
            await first.socket.close()
            answer = await asked
    assert answer.json()["choices"][0]["message"]["content"] == "abcdab"
    await bare.under_test.at_rest()
    assert only_settlement(bare.under_test).output == 6


async def test_last_node_lost_is_said_at_once(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        asked = asyncio.create_task(bare.chat())
        await node.job()
        await node.socket.close()
        began = time.monotonic()
        answer = await asked
        assert time.monotonic() - began < 1
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "server_is_overloaded"
    await bare.under_test.at_rest()
    assert only_settlement(bare.under_test).output == 0


async def test_nodes_lost_while_requests_wait_for_room(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model, credits=1) as node:
        running = asyncio.create_task(bare.chat())
        await node.job()
        waiting = [asyncio.create_task(bare.chat()) for _ in range(3)]
        await until(lambda: len(bare.under_test.world.waiting) == 3)
        await node.socket.close()
        answers = await asyncio.gather(running, *waiting)
    assert [answer.status_code for answer in answers] == [503] * 4
    assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
    await bare.under_test.at_rest()
    assert all(each.amount_nano == 0 for each in bare.under_test.ledger.settled.values())


async def test_draining_node_finishes_what_it_has(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        asked = asyncio.create_task(bare.chat(max_tokens=2))
        job = await node.job()
        await node.send(Draining(deadline_s=5.0))
        await until(lambda: not bare.under_test.fleet.candidates(MODEL))
        refused = await bare.chat()
        await node.answer(job, "ab", finish="length")
        assert (await asked).status_code == 200
        assert refused.json()["error"]["code"] == "no_node_available"
        await bare.under_test.at_rest()


@pytest.mark.parametrize("garbage", [b"\xc1garbage", b"", b"\x00" * (FRAME_BYTES_MAX + 2048)])
async def test_garbage_of_one_node_does_not_touch_streams_of_another(
    bare: Serving, garbage: bytes
) -> None:
    under_test = bare.under_test
    async with named_node(under_test, bare.model, "good", tokens_per_s=200.0):
        asked = asyncio.create_task(bare.chat(stream=True, max_tokens=60))
        await until(lambda: under_test.ledger.open)
        headers = {"authorization": f"Bearer {let_in(under_test, 'rogue')}"}
        async with connect(under_test.fleet_url, additional_headers=headers) as rogue:
            await rogue.send(encode(hello_of(bare.model, node="rogue")))
            await until(lambda: "rogue" in under_test.fleet.nodes())
            with contextlib.suppress(ConnectionClosed, OSError):
                await rogue.send(garbage)
            await rogue.wait_closed()
        assert "rogue" not in under_test.fleet.nodes()
        answer = await asked
    assert answer.text.endswith("data: [DONE]\n\n")
    await under_test.at_rest()
    assert only_settlement(under_test).output == 60


async def test_impossible_output_ends_its_request_alone(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        asked = [asyncio.create_task(bare.chat(stream=True, max_tokens=4)) for _ in range(2)]
        first, second = await node.job(), await node.job()
        for job in (first, second):
            await node.answer(job, "ab")
        await node.answer(first, chr(0x7F) * 9)
        await node.answer(second, "cd", finish="length")
        answers = sorted([(await each).text for each in asked], key=len)
        assert sum("[DONE]" in text for text in answers) == 1
        assert sum('"code":"node_lost"' in text for text in answers) == 1
        await bare.under_test.at_rest()
    charged = sorted(each.counts.output for each in bare.under_test.ledger.settled.values())
    assert charged == [2, 4]


async def test_deadline_passes_to_the_client(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "REQUEST_DEADLINE_S", 1)
    async with named_node(bare.under_test, bare.model, "slow", tokens_per_s=20.0):
        whole, stream = await asyncio.gather(
            bare.chat(max_tokens=500), bare.chat(max_tokens=500, stream=True)
        )
        await bare.under_test.at_rest()
    assert whole.status_code == 504 and whole.json()["error"]["code"] == "deadline_exceeded"
    assert whole.headers["x-should-retry"] == "false"
    assert '"code":"deadline_exceeded"' in stream.text and "[DONE]" not in stream.text
    charged = sorted(each.counts.output for each in bare.under_test.ledger.settled.values())
    assert charged[0] == 0 and 5 <= charged[1] <= 25


# The client leaves, or stalls.


async def test_client_that_leaves_the_queue_gives_up_its_place(bare: Serving) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model, credits=1) as node:
        running = asyncio.create_task(bare.chat(max_tokens=2))
        job = await node.job()
        with raw_post(under_test.port, STREAM):
            await until(lambda: len(under_test.world.waiting) == 1)
        await until(lambda: len(under_test.world.waiting) == 0)
        await node.answer(job, "ab", finish="length")
        assert (await running).status_code == 200
        await under_test.at_rest()
    assert sorted(each.counts.output for each in under_test.ledger.settled.values()) == [0, 2]
    assert sorted(record.status for record in under_test.recorder.records) == [200, 499]


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_client_that_leaves_before_the_first_token_pays_nothing(
    bare: Serving, body: dict[str, object]
) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model) as node:
        with raw_post(under_test.port, body):
            job = await node.job()
        await until(lambda: node.cancelled == [job.request])
        await node.answer(job, finish="cancelled")
        await under_test.at_rest()
    assert only_settlement(under_test) == TokenCounts(uncached=0, cached=0, output=0)
    (record,) = under_test.recorder.records
    assert record.status == 499


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_client_that_leaves_later_pays_what_the_node_made(
    bare: Serving, body: dict[str, object]
) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model) as node:
        with raw_post(under_test.port, body):
            job = await node.job()
            await node.answer(job, "abc")
            await until(
                lambda: any(each.stream.completion_tokens for each in open_jobs(under_test))
            )
        await until(lambda: node.cancelled == [job.request])
        await node.answer(job, "d", finish="cancelled")
        await under_test.at_rest()
    assert only_settlement(under_test) == TokenCounts(uncached=4, cached=0, output=4)


async def test_client_that_leaves_while_its_charge_is_written(bare: Serving) -> None:
    under_test = bare.under_test
    written, settle = asyncio.Event(), under_test.ledger.settle

    async def slow_settle(settlement: Any) -> None:
        await written.wait()
        await settle(settlement)

    under_test.ledger.settle = slow_settle  # type: ignore[method-assign]
    async with named_node(under_test, bare.model, "node"):
        with raw_post(under_test.port, {**STREAM, "max_tokens": 6}) as client:
            client.setblocking(False)
            read = b""
            while b'"finish_reason":"length"' not in read:
                read += await asyncio.get_running_loop().sock_recv(client, 4096)
        written.set()
        await under_test.at_rest()
    assert only_settlement(under_test) == TokenCounts(uncached=4, cached=0, output=6)
    assert len(under_test.recorder.records) == 1


async def test_all_choices_stop_when_the_client_leaves(bare: Serving) -> None:
    under_test = bare.under_test
    async with named_node(under_test, bare.model, "node", tokens_per_s=200.0):
        async with streaming(bare, n=4, max_tokens=1000) as answer:
            await first_text(answer)
        await under_test.at_rest()
    charged = only_settlement(under_test)
    assert charged.output % 4 == 0 and 4 <= charged.output < 400


async def test_slow_reader_is_cut_off_with_bounded_memory(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "SEND_S_MAX", 0.3)
    under_test = bare.under_test
    under_test.keys.current = make_snapshot(MODEL, window=200_000, output_max=100_000)
    async with hand_node(under_test, bare.model, window=200_000) as node:
        with raw_post(under_test.port, {**STREAM, "max_tokens": 90_000}):
            job = await node.job()
            deepest = 0
            # Far more than the kernel's buffers on both ends of a loopback connection take.
            for _ in range(6000):
                await node.answer(job, "\x01" * 15)
                if node.cancelled:
                    break
                deepest = max(deepest, len(open_jobs(under_test)[0].stream._buffer))
            await until(lambda: node.cancelled)
            await node.answer(job, finish="cancelled")
            await under_test.at_rest()
    assert deepest <= under_test.fleet.limits.stream_outputs_max + 1
    assert only_settlement(under_test).output > 0
    (record,) = under_test.recorder.records
    assert record.status in (499, 500)


async def test_reader_behind_by_more_than_the_bound_is_told(bare: Serving) -> None:
    under_test = bare.under_test
    limits = msgspec.structs.replace(under_test.fleet.limits, stream_outputs_max=4)
    under_test.fleet.limits = limits
    safety = HeldSafety()
    bare.under_test.world.safety = safety
    bare.under_test.keys.current = make_snapshot(MODEL, safety="block")
    async with hand_node(bare.under_test, bare.model) as node:
        asked = asyncio.create_task(bare.chat(stream=True, max_tokens=1000))
        job = await node.job()
        await node.answer(job, "word " * 30)
        await until(lambda: safety.asked)
        for _ in range(6):
            await node.answer(job, "c")
        await until(lambda: node.cancelled)
        safety.free.set()
        text = (await asked).text
        assert '"code":"slow_reader"' in text and "[DONE]" not in text
        await node.answer(job, finish="cancelled")
        await bare.under_test.at_rest()
    assert only_settlement(bare.under_test).output == 156


class HeldSafety:
    """A classifier that answers once it is let."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.asked = 0

    async def score(self, text: str) -> float:
        """Nothing bad."""
        self.asked += 1
        await self.free.wait()
        return 0.0


# Too much at once.


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
    monkeypatch.setattr(saturation, "WAITING_MAX", 2)
    under_test = bare.under_test
    async with hand_node(under_test, bare.model, credits=1) as node:
        running = asyncio.create_task(bare.chat(max_tokens=1))
        job = await node.job()
        waiting = [asyncio.create_task(bare.chat(max_tokens=1)) for _ in range(2)]
        await until(lambda: len(under_test.world.waiting) == 2)
        began = time.monotonic()
        refused = await bare.chat()
        assert time.monotonic() - began < 0.05
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "server_is_overloaded"
        assert int(refused.headers["retry-after"]) > 0
        for _ in range(3):
            await node.answer(job, "x", finish="length")
            job = await node.job() if node.jobs or len(under_test.world.waiting) else job
        assert [(await each).status_code for each in (running, *waiting)] == [200] * 3
        await under_test.at_rest()


async def test_wait_is_bounded(bare: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saturation, "WAIT_S_MAX", 0.2)
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


# The gateway itself ends.


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

    monkeypatch.setattr("controlplane.gateway.pipeline.tokenize", broken)
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
