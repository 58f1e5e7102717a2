"""I9: any OpenAI-compatible server can stand behind a node. Here it is another Sluice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from controlplane.gateway.nodes.measured.breaker import BreakerState
from controlplane.gateway.ports import Orders
from controlplane.kernel.price import TokenCounts
from tests.support.fleet import echo_node
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.ports import KEY
from tests.support.relay import relaying
from tests.support.remote import remote_node
from tests.support.serving import CHAT_PATH, Serving
from tests.support.upstream import DONE, text_chunk, thought_chunk, usage_chunk
from tests.support.waiting import until


@pytest.fixture
async def behind(bare: Serving) -> AsyncIterator[GatewayUnderTest]:
    """A second Sluice with an engine, reached by a node of the first."""
    upstream = GatewayUnderTest()
    async with (
        running_gateway(upstream),
        echo_node(upstream.fleet_url, bare.model, tokens_per_s=200.0),
    ):
        await upstream.served()
        async with remote_node(bare.under_test, upstream.url, key=KEY):
            yield upstream
            await bare.under_test.at_rest()
            await upstream.at_rest()


async def test_both_charge_for_the_same_tokens(bare: Serving, behind: GatewayUnderTest) -> None:
    answer = await bare.chat()
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "abcdab"
    counts = TokenCounts(uncached=4, cached=0, output=6)
    (ours,) = bare.under_test.ledger.settled.values()
    theirs = list(behind.ledger.settled.values())[-1]
    assert (ours.counts, theirs.counts) == (counts, counts)
    assert (ours.source, theirs.source) == ("node", "gateway")


async def test_a_pool_can_refuse_a_server_whose_cache_tenants_share(
    bare: Serving, behind: GatewayUnderTest
) -> None:
    fleet, port = bare.under_test.fleet, bare.under_test.fleet_port
    (node,) = fleet.nodes().values()
    assert not node.separates_tenants, "all of its tenants are one to the server"
    assert (await bare.chat()).status_code == 200
    port.said[node.identity.id] = Orders(separate_caches=True)
    await until(lambda: not fleet.models())
    assert (await bare.chat()).status_code == 503
    del port.said[node.identity.id]
    await until(lambda: fleet.models())
    assert (await bare.chat()).status_code == 200


async def test_a_client_that_leaves_stops_the_engine_behind_both(
    bare: Serving, behind: GatewayUnderTest
) -> None:
    messages = [{"role": "user", "content": "abcd"}]
    body = {"model": "tiny", "messages": messages, "stream": True, "max_tokens": 1000}
    async with bare.client.stream("POST", CHAT_PATH, json=body) as answer:
        async for line in answer.aiter_lines():
            if '"content":"c"' in line:
                break
    await until(lambda: not bare.under_test.ledger.open and not behind.ledger.open)
    theirs = list(behind.ledger.settled.values())[-1]
    assert 3 <= theirs.counts.output < 1000
    assert list(bare.under_test.ledger.settled.values())[-1].source == "estimate"


async def test_what_the_server_cannot_take_is_said_in_its_words(
    bare: Serving, behind: GatewayUnderTest
) -> None:
    answer = await bare.complete(prompt="a" * 5000)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert "4096" in answer.json()["error"]["message"]


async def test_a_model_thinks_as_long_as_its_node_allows_and_its_thoughts_are_shown(
    bare: Serving,
) -> None:
    """Longer than this gateway lets other nodes be silent, first without a word."""
    fleet = bare.under_test.fleet
    fleet.limits = msgspec.structs.replace(fleet.limits, progress_timeout_s=1.5)
    async with relaying(bare, first_byte_timeout_s=60.0) as relay:
        asked, exchange = await relay.ask()
        await exchange.begin()
        await asyncio.sleep(2 * fleet.limits.progress_timeout_s)
        await exchange.event(thought_chunk("one and one"))
        await exchange.event(text_chunk("2", finish="stop"))
        await exchange.event(usage_chunk(9, 5, reasoning=4))
        await exchange.event(DONE)
        await exchange.end()
        body = (await asked).json()
        (link,) = fleet.nodes().values()
        assert link.breaker.state is BreakerState.CLOSED
    message = body["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("one and one", "2")
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    assert relay.last_counts == TokenCounts(uncached=9, cached=0, output=5)
