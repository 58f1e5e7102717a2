"""P7: timeouts that follow what was observed, breakers per node, jittered retries before the first
token only; a lost node's stream goes on only where its route says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from controlplane.gateway.nodes.measured.breaker import FAILURES_IN_A_ROW_MAX, BreakerState
from controlplane.gateway.nodes.measured.times import KNOWN_MIN, Bound
from inference.engines.remote.patience import KNOWN_MIN as SERVER_KNOWN_MIN
from tests.support.fleet import MODEL, QUICK
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.nodes import hand_node, named_node
from tests.support.relay import relaying
from tests.support.serving import Serving
from tests.support.upstream import text_chunk, usage_chunk
from tests.support.waiting import until

# As in production, but for the floor: a test need not wait for seconds.
ADAPTIVE = msgspec.structs.replace(QUICK, quiet=Bound(floor_s=0.2, cap_s=15.0), frozen_s=0.2)
IMPATIENT = msgspec.structs.replace(QUICK, pong_timeout_s=2.0)


@pytest.fixture(params=[ADAPTIVE], ids=["adaptive"])
async def adaptive(bare: Serving, request: pytest.FixtureRequest) -> AsyncIterator[Serving]:
    """The same gateway with the floor of its bounds lowered, or as the test names it."""
    under_test = GatewayUnderTest(request.param)
    async with running_gateway(under_test) as client:
        yield Serving(under_test, client, bare.model)


@pytest.mark.parametrize("adaptive", [IMPATIENT], ids=["impatient"], indirect=True)
async def test_a_node_that_stops_answering_is_given_up_and_another_answers(
    adaptive: Serving,
) -> None:
    under_test = adaptive.under_test
    async with hand_node(under_test, adaptive.model, name="frozen") as frozen:
        asked = asyncio.create_task(adaptive.chat())
        await frozen.job()
        async with named_node(under_test, adaptive.model, "good"):
            # From here on it answers nothing, not even a ping.
            frozen.frozen = True
            answer = await asked
            assert (answer.status_code, answer.headers["x-sluice-node"]) == (200, "good")
            await until(lambda: set(under_test.fleet.nodes()) == {"good"})
            await under_test.at_rest()
    (record,) = under_test.recorder.records
    (attempt,) = msgspec.json.decode(record.receipt)["attempts"]
    assert attempt["node"] == "frozen" and attempt["reason"]


async def test_once_a_node_is_known_its_standstill_is_noticed_at_once(adaptive: Serving) -> None:
    """The cap is 15 s, and nobody waits for it: the bound is that of a node that was quick."""
    under_test = adaptive.under_test
    async with hand_node(under_test, adaptive.model, name="frozen") as frozen:
        for _ in range(KNOWN_MIN):
            asked = asyncio.create_task(adaptive.chat(max_tokens=1))
            await frozen.answer(await frozen.job(), "a", finish="length")
            assert (await asked).status_code == 200
        frozen.frozen = True
        asked = asyncio.create_task(adaptive.chat())
        await until(lambda: under_test.fleet.nodes()["frozen"].jobs)
        async with named_node(under_test, adaptive.model, "good"):
            answer = await asked
            assert (answer.status_code, answer.headers["x-sluice-node"]) == (200, "good")
            await until(lambda: set(under_test.fleet.nodes()) == {"good"})
            await under_test.at_rest()


async def test_a_node_that_fails_gets_no_work_while_another_is_there(bare: Serving) -> None:
    under_test = bare.under_test
    async with hand_node(under_test, bare.model, name="bad") as bad:
        for _ in range(FAILURES_IN_A_ROW_MAX):
            asked = asyncio.create_task(bare.chat())
            await bad.answer(await bad.job(), finish="error")
            assert (await asked).status_code == 503
        (link,) = under_test.fleet.nodes().values()
        assert (link.breaker.state, link.breaker.ejections) == (BreakerState.OPEN, 1)
        # The last node of a model is never left out.
        assert under_test.fleet.candidates(MODEL) == (link,)
        async with named_node(under_test, bare.model, "good"):
            assert link not in under_test.fleet.candidates(MODEL)
            answers = [await bare.chat() for _ in range(FAILURES_IN_A_ROW_MAX)]
            assert {answer.headers["x-sluice-node"] for answer in answers} == {"good"}
            await under_test.at_rest()


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


async def test_a_request_ends_with_its_time(bare: Serving) -> None:
    bare.under_test.world.request_deadline_s = 1
    async with named_node(bare.under_test, bare.model, "slow", tokens_per_s=20.0):
        await bare.under_test.served()
        answer = await bare.chat(max_tokens=500)
        await bare.under_test.at_rest()
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")


async def test_once_a_server_behind_a_node_is_known_its_silence_is_noticed_at_once(
    bare: Serving,
) -> None:
    """It may be silent for a minute, and nobody waits for that: the bound is what it was."""
    async with relaying(bare, first_byte_timeout_s=60.0, first_byte_floor_s=0.2) as relay:
        for _ in range(SERVER_KNOWN_MIN):
            asked, exchange = await relay.ask()
            await exchange.answer(text_chunk("ok", finish="stop"), usage_chunk(3, 1))
            assert (await asked).status_code == 200
        asked, exchange = await relay.ask()
        await exchange.left()
        assert (await asked).status_code == 503
