"""P3: a client that leaves aborts generation at once; what was generated is billed, no more."""

from __future__ import annotations

from tests.support.faults import BODY, STREAM, only_settlement, raw_post
from tests.support.fleet import until
from tests.support.nodes import hand_node
from tests.support.serving import Serving


async def test_node_is_told_at_once_and_the_bill_is_what_it_made(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        with raw_post(bare.under_test.port, STREAM):
            job = await node.job()
            await node.answer(job, "ab")
            links = bare.under_test.fleet.nodes().values()
            await until(lambda: not any(link.account.queued_tokens for link in links))
        await until(lambda: node.cancelled == [job.request])
        await node.answer(job, finish="cancelled")
        await bare.under_test.at_rest()
    assert only_settlement(bare.under_test).output == 2


async def test_client_that_does_not_stream_aborts_too(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model) as node:
        with raw_post(bare.under_test.port, BODY):
            job = await node.job()
        await until(lambda: node.cancelled == [job.request])
        await node.answer(job, finish="cancelled")
        await bare.under_test.at_rest()
    assert only_settlement(bare.under_test).output == 0
