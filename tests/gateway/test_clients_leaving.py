"""Clients that leave or stall in any state: what was made is charged, nothing runs on."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from controlplane.gateway import app
from controlplane.kernel.price import TokenCounts
from tests.support.faults import BODY, STREAM, only_settlement, open_jobs, raw_post
from tests.support.fleet import MODEL, until
from tests.support.nodes import hand_node, named_node
from tests.support.ports import make_snapshot
from tests.support.serving import Serving


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


# Room for more than a connection's buffers on both ends take.
WINDOW = 8_000_000


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
        with raw_post(under_test.port, {**STREAM, "n": 4, "max_tokens": 1000}):
            await until(lambda: open_jobs(under_test))
            await until(lambda: open_jobs(under_test)[0].stream.completion_tokens)
        await under_test.at_rest()
    charged = only_settlement(under_test)
    assert charged.output % 4 == 0 and 4 <= charged.output < 400


async def test_slow_reader_is_cut_off_with_bounded_memory(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "SEND_S_MAX", 0.3)
    under_test = bare.under_test
    under_test.keys.current = make_snapshot(MODEL, window=WINDOW, output_max=WINDOW // 2)
    async with hand_node(under_test, bare.model, window=WINDOW) as node:
        with raw_post(under_test.port, {**STREAM, "max_tokens": WINDOW // 2}):
            job = await node.job()
            deepest = 0
            # Far more than the kernel's buffers on both ends of a loopback connection take.
            for _ in range(6000):
                await node.answer(job, "\x01" * 400)
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
