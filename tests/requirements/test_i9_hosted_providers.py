"""I9: one node serves models of several providers, each asked in its own dialect. Here they are
another Sluice, whose charges tell what it has counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.kernel.price import TokenCounts
from inference.engines.hosted.engine import HostedEngine, HostedOptions
from inference.node.assets import Assets
from inference.node.options import NodeOptions
from inference.node.service import Node
from tests.support.fleet import MODEL, echo_node
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.nodes import let_in
from tests.support.ports import KEY
from tests.support.serving import Serving
from tests.support.waiting import until

NAME = "connector"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}], "max_tokens": 6}
CHAT_PATH, MESSAGES_PATH = "/v1/chat/completions", "/v1/messages"


class Connector:
    """A node of hosted providers, and what feeds it."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.engine = HostedEngine(HostedOptions(credits=4), lines=self._read)

    async def _read(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.lines.get()

    def feed(self, url: str, kind: str, *secrets: str, models: tuple[str, ...] = (MODEL,)) -> None:
        connection: dict[str, Any] = {
            "name": "theirs",
            "kind": kind,
            "url": url,
            "keys": [{"id": f"key-{place}", "secret": each} for place, each in enumerate(secrets)],
            "models": [
                {"name": each, "upstream": MODEL, "context_window": 4096} for each in models
            ],
        }
        self.lines.put_nowait(json.dumps({"connections": [connection]}).encode() + b"\n")


@contextlib.asynccontextmanager
async def connected(bare: Serving, url: str, kind: str) -> AsyncIterator[Connector]:
    connector = Connector()
    connector.feed(url, kind, KEY)
    settings = NodeOptions(
        gateways=(bare.under_test.fleet_url,),
        name=NAME,
        credential=let_in(bare.under_test, NAME),
    )
    node = Node(connector.engine, Assets(), settings)
    try:
        await node.start()
        await until(lambda: bare.under_test.fleet.models())
        yield connector
    finally:
        await node.close()


@pytest.fixture
async def theirs(bare: Serving) -> AsyncIterator[GatewayUnderTest]:
    """Another Sluice with an engine."""
    upstream = GatewayUnderTest()
    async with (
        running_gateway(upstream),
        echo_node(upstream.fleet_url, bare.model, tokens_per_s=200.0),
    ):
        await upstream.served()
        yield upstream
        await bare.under_test.at_rest()
        await upstream.at_rest()


def _said(path: str, body: dict[str, Any]) -> str:
    """The answer's text in either shape."""
    if path == MESSAGES_PATH:
        return "".join(block["text"] for block in body["content"])
    return str(body["choices"][0]["message"]["content"])


@pytest.mark.parametrize("asked", [CHAT_PATH, MESSAGES_PATH])
@pytest.mark.parametrize("kind", ["other", "anthropic"])
async def test_either_dialect_is_served_by_either_with_the_providers_own_count(
    bare: Serving, theirs: GatewayUnderTest, kind: str, asked: str
) -> None:
    async with connected(bare, theirs.url, kind):
        answer = await bare.client.post(asked, json=CHAT)
        assert answer.status_code == 200, answer.text
        assert _said(asked, answer.json()) == "abcdab"
        await until(lambda: theirs.ledger.settled and bare.under_test.ledger.settled)
        counts = TokenCounts(uncached=4, cached=0, output=6)
        (ours,) = bare.under_test.ledger.settled.values()
        assert (ours.counts, ours.source) == (counts, "node")
        assert [each.counts for each in theirs.ledger.settled.values()] == [counts]
        streamed = await bare.client.post(asked, json={**CHAT, "stream": True})
        assert streamed.status_code == 200
        await until(lambda: len(bare.under_test.ledger.settled) == 2)
        assert list(bare.under_test.ledger.settled.values())[-1].counts == counts


async def test_keys_and_models_change_while_it_serves(
    bare: Serving, theirs: GatewayUnderTest
) -> None:
    async with connected(bare, theirs.url, "anthropic") as connector:
        connector.feed(theirs.url, "anthropic", "sk_sluice_wrong", KEY, models=(MODEL, "second"))
        await until(lambda: "second" in bare.under_test.fleet.models())
        # The key that is refused is left before anybody has heard of it.
        for _ in range(3):
            assert (await bare.client.post(CHAT_PATH, json=CHAT)).status_code == 200
        connector.feed(theirs.url, "other", KEY, models=("second",))
        await until(lambda: MODEL not in bare.under_test.fleet.models())
        assert (await bare.client.post(CHAT_PATH, json=CHAT)).status_code >= 400


async def test_what_the_provider_cannot_do_names_the_field(
    bare: Serving, theirs: GatewayUnderTest
) -> None:
    async with connected(bare, theirs.url, "anthropic"):
        answer = await bare.client.post(CHAT_PATH, json={**CHAT, "seed": 4})
        assert answer.status_code == 400
        assert "seed" in answer.json()["error"]["message"]
        too_long = {**CHAT, "messages": [{"role": "user", "content": "a" * 5000}]}
        answer = await bare.client.post(CHAT_PATH, json=too_long)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
