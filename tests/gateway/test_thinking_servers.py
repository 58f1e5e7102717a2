"""A server that thinks for long behind a node: the node lives, and so do its jobs.

The times of the gateway are a fraction of those of production; the server thinks for longer than
all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.gateway.nodes.measured.breaker import BreakerState
from controlplane.gateway.nodes.measured.times import Bound
from inference.engines.remote import engine as remote
from tests.support.fleet import QUICK
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.relay import MESSAGES, Relay, first_word, next_word, relaying
from tests.support.serving import CHAT_PATH, Serving, model
from tests.support.upstream import Exchange, text_chunk, usage_chunk
from tests.support.waiting import until

__all__ = ["model"]

BEAT_S = 0.05
BOUND = Bound(floor_s=0.6, cap_s=0.6)
LIMITS: LinkLimits = msgspec.structs.replace(
    QUICK,
    progress_timeout_s=1.0,
    quiet=BOUND,
    first_token=BOUND,
    inter_token=BOUND,
    kept_s=BOUND.cap_s,
    frozen_s=0.5,
)
THOUGHT_S = 2.5


@pytest.fixture
async def thinking(model: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    """A gateway that waits for nothing long, and no node yet."""
    monkeypatch.setattr(remote, "HEARTBEAT_S", BEAT_S)
    under_test = GatewayUnderTest(LIMITS)
    async with running_gateway(under_test) as client:
        yield Serving(under_test, client, model)


async def think(relay: Relay, exchange: Exchange, *, bytes_too: bool) -> None:
    """Show nothing for long; some servers send comments meanwhile."""
    end_s = asyncio.get_running_loop().time() + THOUGHT_S
    while asyncio.get_running_loop().time() < end_s:
        if bytes_too:
            await exchange.part(b": still here\n\n")
        await asyncio.sleep(BEAT_S)
        (link,) = relay.under_test.fleet.nodes().values()
        assert link.breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize("bytes_too", [False, True])
async def test_a_model_may_think_before_its_first_word(thinking: Serving, bytes_too: bool) -> None:
    first_byte_s = BOUND.cap_s if bytes_too else 2 * THOUGHT_S
    async with relaying(thinking, first_byte_timeout_s=first_byte_s, idle_timeout_s=1.0) as relay:
        asked, exchange = await relay.ask()
        await exchange.begin()
        await think(relay, exchange, bytes_too=bytes_too)
        await exchange.event(text_chunk("ok", finish="stop"))
        await exchange.event(usage_chunk(4, 2))
        await exchange.event("[DONE]")
        await exchange.end()
        answer = await asked
        assert answer.json()["choices"][0]["message"]["content"] == "ok"


async def test_and_between_two_words(thinking: Serving) -> None:
    async with relaying(thinking, idle_timeout_s=2 * THOUGHT_S) as relay:
        body = {"model": "tiny", "messages": MESSAGES, "stream": True}
        begun = asyncio.create_task(first_word(relay.upstream, "one "))
        async with thinking.client.stream("POST", CHAT_PATH, json=body) as answer:
            lines = answer.aiter_lines()
            assert await next_word(lines) == "one "
            exchange = await begun
            await think(relay, exchange, bytes_too=False)
            await exchange.event(text_chunk("two", finish="stop"))
            assert await next_word(lines) == "two"
            await exchange.event("[DONE]")
            await exchange.end()
            assert [line async for line in lines if line][-1] == "data: [DONE]"


async def test_the_nodes_own_bound_ends_a_server_that_never_speaks(thinking: Serving) -> None:
    async with relaying(thinking, first_byte_timeout_s=1.5) as relay:
        asked, exchange = await relay.ask()
        await exchange.begin()
        await exchange.left()
        assert (await asked).status_code == 503
        (link,) = relay.under_test.fleet.nodes().values()
        assert link.breaker.state is BreakerState.CLOSED


async def test_a_node_that_no_longer_speaks_for_its_server_is_found(
    thinking: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with relaying(thinking, first_byte_timeout_s=60.0) as relay:
        (link,) = relay.under_test.fleet.nodes().values()
        asked, exchange = await relay.ask()
        await exchange.begin()
        monkeypatch.setattr(remote.RemoteEngine, "_step", lambda *_: None)
        await until(lambda: link.breaker.state is BreakerState.OPEN)
        assert (await asked).status_code == 503
        assert link.breaker.cause.value == "stalled"
