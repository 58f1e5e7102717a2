"""P3: a client that leaves aborts generation at once; what was generated is billed, no more."""

from __future__ import annotations

from inference.compact.options import CompactOptions
from inference.engines.compact import CompactEngine
from tests.support.faults import BODY, STREAM, only_settlement, raw_post
from tests.support.fleet import MODEL, NODE, running_node
from tests.support.nodes import hand_node
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED
from tests.support.waiting import until

LEAVERS = 5
PROMPT_TOKENS_MIN = 2_000


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


async def test_nobody_has_prompts_computed_for_nothing(bare: Serving) -> None:
    """Long prompts whose clients leave amid the prefill, on a real engine."""
    under_test = bare.under_test
    options = CompactOptions(name=MODEL, device="cpu", dtype="float32", step_tokens=64)
    async with running_node(CompactEngine(SHIPPED, options), under_test.fleet_url, SHIPPED):
        await under_test.served()
        link = under_test.fleet.nodes()[NODE]
        for number in range(LEAVERS):
            words = f"{number} " + "hotel " * PROMPT_TOKENS_MIN
            body = {**STREAM, "messages": [{"role": "user", "content": words}]}
            with raw_post(under_test.port, body):
                await until(lambda: link.load and link.load.waiting_tokens > PROMPT_TOKENS_MIN // 2)
            await under_test.at_rest()
    charges = list(under_test.ledger.settled.values())
    assert len(charges) == LEAVERS
    for charge in charges:
        assert charge.amount_nano > 0 and charge.counts.output == 0
        # More than was seen to be done, and not all.
        assert 64 <= charge.counts.uncached + charge.counts.cached < PROMPT_TOKENS_MIN
