"""Nodes that fail, refuse or lie on the way: one charge each, nothing left open."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from controlplane.gateway.s4_route.queue import room
from controlplane.kernel.clock import monotonic_s
from controlplane.kernel.price import TokenCounts
from inference.contract.codec import encode
from inference.contract.drain import Draining
from inference.contract.frames import FRAME_BYTES_MAX
from tests.support.faults import only_settlement, open_jobs
from tests.support.fleet import MODEL
from tests.support.nodes import hand_node, hello_of, let_in, named_node
from tests.support.serving import Serving
from tests.support.waiting import until


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


async def test_another_attempt_goes_to_a_node_that_was_seen_since(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nodes that freeze together, one that had no work looks free for longer."""
    monkeypatch.setattr(room, "SEEN_S", 0.5)
    under_test = bare.under_test
    async with (
        hand_node(under_test, bare.model, name="first", credits=1) as first,
        named_node(under_test, bare.model, "works", tokens_per_s=50.0),
    ):
        jobs = [asyncio.create_task(bare.chat(max_tokens=60)) for _ in range(2)]
        await first.job()
        async with hand_node(under_test, bare.model, name="mute") as mute:
            mute.frozen = True
            links = {link.identity.name: link for link in under_test.fleet.candidates(MODEL)}
            await until(lambda: monotonic_s() - links["mute"].seen_s > room.SEEN_S)
            await first.socket.close()
            answers = await asyncio.gather(*jobs)
    assert [answer.headers["x-sluice-node"] for answer in answers] == ["works", "works"]
    await under_test.at_rest()


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
        # A busy machine takes its time; whoever waits for a node waits longer.
        assert time.monotonic() - began < 5
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


async def test_deadline_passes_to_the_client(bare: Serving) -> None:
    bare.under_test.world.request_deadline_s = 1
    async with named_node(bare.under_test, bare.model, "slow", tokens_per_s=20.0):
        await bare.under_test.served()
        whole, stream = await asyncio.gather(
            bare.chat(max_tokens=500), bare.chat(max_tokens=500, stream=True)
        )
        await bare.under_test.at_rest()
    assert whole.status_code == 504 and whole.json()["error"]["code"] == "deadline_exceeded"
    assert whole.headers["x-should-retry"] == "false"
    assert '"code":"deadline_exceeded"' in stream.text and "[DONE]" not in stream.text
    charged = sorted(each.counts.output for each in bare.under_test.ledger.settled.values())
    assert charged[0] == 0 and 5 <= charged[1] <= 25
