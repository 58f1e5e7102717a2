"""A gateway with one echo node and a client of it: fixtures, and the requests tests send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from controlplane.gateway.nodes.limits import LinkLimits
from tests.support.fleet import MODEL, echo_node, make_model
from tests.support.gateway import GatewayUnderTest, running_gateway

CHAT_PATH = "/v1/chat/completions"


@dataclass
class Serving:
    """A running gateway, a client with a key, and the folder of the model."""

    under_test: GatewayUnderTest
    client: httpx2.AsyncClient
    model: Path

    async def chat(self, **fields: Any) -> httpx2.Response:
        """A chat completion of `abcd`, six tokens, with these fields changed."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": "abcd"}], "max_tokens": 6}
        return await self.client.post(CHAT_PATH, json={**body, **fields})

    async def complete(self, **fields: Any) -> httpx2.Response:
        """The same as a text completion."""
        body = {"model": MODEL, "prompt": "abcd", "max_tokens": 6}
        return await self.client.post("/v1/completions", json={**body, **fields})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A byte tokenizer with its configuration."""
    return make_model(tmp_path)


@pytest.fixture
async def bare(model: Path) -> AsyncIterator[Serving]:
    """A gateway without any node."""
    under_test = GatewayUnderTest()
    async with running_gateway(under_test) as client:
        yield Serving(under_test, client, model)


@pytest.fixture
async def steady(model: Path) -> AsyncIterator[Serving]:
    """The same with the times of production: something heavy runs beside it."""
    under_test = GatewayUnderTest(limits=LinkLimits())
    async with running_gateway(under_test) as client:
        yield Serving(under_test, client, model)


@pytest.fixture
async def serving(steady: Serving) -> AsyncIterator[Serving]:
    """With an echo node that makes a token each 2 ms; nothing may stay open."""
    async with echo_node(steady.under_test.fleet_url, steady.model, tokens_per_s=500.0):
        await steady.under_test.served()
        yield steady
        await steady.under_test.at_rest()
