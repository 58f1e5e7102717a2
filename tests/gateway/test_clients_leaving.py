"""Clients that leave or stall in any state: what was made is charged, nothing runs on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from controlplane.gateway import pipeline
from controlplane.kernel.price import TokenCounts
from tests.support.faults import BODY, STREAM, only_settlement, open_jobs, raw_post
from tests.support.fleet import MODEL, WAIT_S, make_step
from tests.support.nodes import HandNode, hand_node, named_node
from tests.support.ports import make_snapshot
from tests.support.serving import Serving
from tests.support.waiting import until


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


CONFIRM_S = 2.0
# Room for more than a connection's buffers on both ends take.
WINDOW = 8_000_000


@pytest.mark.parametrize("body", [BODY, STREAM])
@pytest.mark.parametrize("prefilled", [0, 3])
async def test_client_that_leaves_before_the_first_token_pays_the_prompt_that_was_computed(
    bare: Serving, body: dict[str, object], prefilled: int
) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model) as node:
        with raw_post(under_test.port, body):
            job = await node.job()
        await until(lambda: node.cancelled == [job.request])
        await node.answer(job, finish="cancelled", prefilled=prefilled)
        await under_test.at_rest()
    assert only_settlement(under_test) == TokenCounts(uncached=prefilled, cached=0, output=0)
    (record,) = under_test.recorder.records
    assert (record.status, record.prompt_tokens) == (499, prefilled)
    # A node that cannot tell has begun all the same: leaving gives the limit's tokens not back.
    limiter = under_test.limiter
    assert limiter.taken[0] + limiter.corrections[0] == (prefilled or len(job.tokens))


async def test_client_that_leaves_pays_nothing_where_its_node_is_lost_too(bare: Serving) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model) as node:
        with raw_post(under_test.port, STREAM):
            job = await node.job()
        await until(lambda: node.cancelled == [job.request])
    await under_test.at_rest()
    assert only_settlement(under_test) == TokenCounts(uncached=0, cached=0, output=0)


async def test_a_prompt_that_was_computed_for_nobody_costs_nothing(bare: Serving) -> None:
    """Its node ends it with an error, and no other is there: the client waited in vain."""
    under_test = bare.under_test
    async with hand_node(under_test, bare.model) as node:
        asking = asyncio.create_task(bare.chat())
        job = await node.job()
        await node.answer(job, finish="error", prefilled=4)
        assert (await asking).status_code == 503
        await under_test.at_rest()
    assert only_settlement(under_test) == TokenCounts(uncached=0, cached=0, output=0)
    limiter = under_test.limiter
    assert limiter.taken[0] + limiter.corrections[0] == 0


async def test_client_that_leaves_while_another_node_is_sought_pays_nothing(
    bare: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "pause_s", lambda failures: 0.2)
    under_test = bare.under_test
    async with hand_node(under_test, bare.model, name="first") as first:
        with raw_post(under_test.port, BODY):
            job = await first.job()
            await first.answer(job, finish="error", prefilled=4)
            await until(lambda: not open_jobs(under_test))
        await under_test.at_rest()
    assert only_settlement(under_test) == TokenCounts(uncached=0, cached=0, output=0)


async def test_a_request_that_is_cut_off_with_its_gateway_costs_nothing_before_its_first_token(
    bare: Serving,
) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model) as node:
        with raw_post(under_test.port, STREAM):
            job = await node.job()
            (serving,) = [task for task in asyncio.all_tasks() if "Cycle.run_asgi" in repr(task)]
            serving.cancel()
            await until(lambda: node.cancelled == [job.request])
            await node.answer(job, finish="cancelled", prefilled=4)
            await under_test.at_rest()
    assert only_settlement(under_test) == TokenCounts(uncached=0, cached=0, output=0)


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


@contextlib.asynccontextmanager
async def computing_node(serving: Serving) -> AsyncIterator[HandNode]:
    """A node within a long step: it confirms no cancel, and says why."""
    under_test = serving.under_test
    under_test.fleet.limits = msgspec.structs.replace(
        under_test.fleet.limits, cancel_confirm_s=CONFIRM_S
    )
    step = msgspec.structs.replace(make_step(), step_us=0, computing_ms=1)
    async with hand_node(under_test, serving.model, silence_s=10 * WAIT_S) as node:

        async def tell() -> None:
            while True:
                await node.send(step)
                await asyncio.sleep(0.1)

        telling = asyncio.create_task(tell())
        try:
            yield node
        finally:
            telling.cancel()


async def test_a_client_that_left_has_its_allowance_back_before_a_long_step_ends(
    bare: Serving,
) -> None:
    under_test = bare.under_test
    async with computing_node(bare) as node:
        with raw_post(under_test.port, STREAM):
            job = await node.job()
        await until(lambda: node.cancelled)
        await until(lambda: under_test.limiter.under_way == 0)
        assert under_test.ledger.open and open_jobs(under_test), "what it costs is not known yet"
        await node.answer(job, finish="cancelled", prefilled=3)
        await under_test.at_rest()
    assert only_settlement(under_test) == TokenCounts(uncached=3, cached=0, output=0)


async def test_a_hold_is_settled_in_its_time_although_a_long_step_goes_on(bare: Serving) -> None:
    under_test = bare.under_test
    under_test.world.request_deadline_s, under_test.world.hold_grace_s = 1, 2
    async with computing_node(bare) as node:
        asking = asyncio.create_task(
            bare.client.post("/v1/chat/completions", json=BODY, timeout=WAIT_S)
        )
        waits = await node.job()
        with raw_post(under_test.port, STREAM):
            left = await node.job()
        assert (await asking).status_code == 504
        await until(lambda: not under_test.ledger.open)
        assert len(open_jobs(under_test)) == 2, "the node has confirmed nothing"
        for job in (waits, left):
            await node.answer(job, finish="cancelled", prefilled=4)
        await under_test.at_rest()
        await until(lambda: set(node.acknowledged) == {waits.request, left.request})
    assert [each.amount_nano for each in under_test.ledger.settled.values()] == [0, 0]
    assert sorted(record.status for record in under_test.recorder.records) == [499, 504]


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


async def test_slow_reader_is_cut_off_with_bounded_memory(bare: Serving) -> None:
    under_test = bare.under_test
    under_test.world.send_s = 0.3
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
