"""I2: the KV cache is paged and reclaimed by the block; pressure preempts and fails nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.gateway.nodes.limits import LinkLimits
from inference.compact.options import CompactOptions
from inference.contract.frames import Step
from inference.engines.compact import CompactEngine
from tests.support.fleet import MODEL, running_node
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.serving import Serving
from tests.support.shipped import SHIPPED, long_prompt, no_end
from tests.support.waiting import until

BLOCK_TOKENS = 16
BLOCKS = 6
PROMPT_TOKENS = 40
OUTPUT_TOKENS = 24
REQUESTS = 4
ANSWER_S_MAX = 60.0
GREEDY = {"temperature": 0}


@pytest.fixture
async def patient(model: Path) -> AsyncIterator[Serving]:
    """A gateway with the product's own patience: the engine computes in this process."""
    under_test = GatewayUnderTest(LinkLimits())
    async with running_gateway(under_test) as client:
        client.timeout = ANSWER_S_MAX
        yield Serving(under_test, client, model)


async def ask_all(patient: Serving, at_once: bool) -> list[str]:
    """Texts of requests that all fit the cache alone, and not together."""
    prompts = [[number + 300, *long_prompt(PROMPT_TOKENS)] for number in range(REQUESTS)]
    asked = [
        patient.complete(
            prompt=prompt, max_tokens=OUTPUT_TOKENS, temperature=0, logit_bias=no_end()
        )
        for prompt in prompts
    ]
    answers = await asyncio.gather(*asked) if at_once else [await one for one in asked]
    for answer in answers:
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == OUTPUT_TOKENS
    return [answer.json()["choices"][0]["text"] for answer in answers]


async def test_what_does_not_fit_together_waits_its_turn_and_every_block_comes_back(
    patient: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of them need more than twice the blocks there are.
    assert REQUESTS * (PROMPT_TOKENS + OUTPUT_TOKENS) > 2 * BLOCKS * BLOCK_TOKENS
    options = CompactOptions(
        name=MODEL,
        device="cpu",
        dtype="float32",
        block_size=BLOCK_TOKENS,
        kv_blocks=BLOCKS,
        threads=1,
    )
    async with running_node(CompactEngine(SHIPPED, options), patient.under_test.fleet_url, SHIPPED):
        await patient.under_test.served()
        preempted: list[int] = []
        (link,) = patient.under_test.fleet.nodes().values()
        take = link.jobs.on_step

        def noted(step: Step) -> list[str]:
            preempted.append(step.preemptions)
            return take(step)

        monkeypatch.setattr(link.jobs, "on_step", noted)
        alone = await ask_all(patient, at_once=False)
        assert not any(preempted)
        assert await ask_all(patient, at_once=True) == alone
        assert any(preempted)
        await patient.under_test.at_rest()
        await until(lambda: link.load is not None and link.load.kv_free_blocks == BLOCKS)
