"""P7, what is there of it: a silent node is noticed, retried before the first token and not after;
a request's own time ends it."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.gateway import call
from tests.support.fleet import until
from tests.support.nodes import hand_node, named_node
from tests.support.serving import Serving


async def test_a_node_that_stops_answering_is_given_up_and_another_answers(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model, name="frozen") as frozen:
        asked = asyncio.create_task(bare.chat())
        await frozen.job()
        async with named_node(bare.under_test, bare.model, "good"):
            # From here on it answers nothing, not even a ping.
            frozen.frozen = True
            answer = await asked
            assert (answer.status_code, answer.headers["x-sluice-node"]) == (200, "good")
            await until(lambda: set(bare.under_test.fleet.nodes()) == {"good"})
            await bare.under_test.at_rest()


async def test_nothing_is_repeated_once_the_client_has_seen_a_token(bare: Serving) -> None:
    async with hand_node(bare.under_test, bare.model, name="first") as first:
        asked = asyncio.create_task(bare.chat(stream=True))
        job = await first.job()
        await first.answer(job, "ab")
        (link,) = bare.under_test.fleet.nodes().values()
        await until(lambda: not link.jobs.unanswered())
        async with named_node(bare.under_test, bare.model, "second"):
            await first.socket.close()
            answer = await asked
            await bare.under_test.at_rest()
    assert '"code":"node_lost"' in answer.text and "[DONE]" not in answer.text


async def test_a_request_ends_with_its_time(bare: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "REQUEST_DEADLINE_S", 1)
    async with named_node(bare.under_test, bare.model, "slow", tokens_per_s=20.0):
        await bare.under_test.served()
        answer = await bare.chat(max_tokens=500)
        await bare.under_test.at_rest()
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
