"""I9: any OpenAI-compatible server can stand behind a node. Here it is another Sluice."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controlplane.kernel.price import TokenCounts
from tests.support.fleet import echo_node, until
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.ports import KEY
from tests.support.remote import remote_node
from tests.support.serving import CHAT_PATH, Serving


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
