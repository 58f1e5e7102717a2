"""A gateway in front of a node whose server is written by hand: what a client sees of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from controlplane.kernel.price import TokenCounts
from tests.support.fleet import MODEL
from tests.support.remote import remote_node
from tests.support.serving import Serving
from tests.support.upstream import Exchange, HandUpstream, hand_upstream, text_chunk, usage_chunk

MESSAGES = [{"role": "user", "content": "abcd"}]


class Relay:
    """A gateway in front of a hand-made server; `ask` is what a client sends."""

    def __init__(self, serving: Serving, upstream: HandUpstream) -> None:
        self.serving = serving
        self.under_test = serving.under_test
        self.upstream = upstream

    async def ask(self, **fields: Any) -> tuple[asyncio.Task[Any], Exchange]:
        """Begin a chat; the client's answer to come, and the server's side of it."""
        asked = asyncio.create_task(self.serving.chat(**fields))
        return asked, await self.upstream.next()

    @property
    def last_source(self) -> str:
        """Whose count the last charge is."""
        return list(self.under_test.ledger.settled.values())[-1].source

    @property
    def last_counts(self) -> TokenCounts:
        """What the last charge is for."""
        return list(self.under_test.ledger.settled.values())[-1].counts


async def answer_probe(upstream: HandUpstream) -> None:
    """The one token that a node asks for before it offers itself."""
    exchange = await upstream.next()
    await exchange.answer(text_chunk("1", finish="length"), usage_chunk(1, 1))


async def first_word(upstream: HandUpstream, word: str) -> Exchange:
    """Begin the next answer; the gateway's own headers wait for it."""
    exchange = await upstream.next()
    await exchange.begin()
    await exchange.event(text_chunk(word))
    return exchange


@contextlib.asynccontextmanager
async def relaying(
    serving: Serving, *, prepare: Callable[[HandUpstream], None] | None = None, **options: Any
) -> AsyncIterator[Relay]:
    """One such node; `options` are those of its engine, `prepare` changes the server before."""
    async with hand_upstream() as upstream:
        upstream.listed = [{"id": MODEL, "context_window": 4096}]
        if prepare is not None:
            prepare(upstream)
        async with contextlib.AsyncExitStack() as stack:
            probed = asyncio.create_task(answer_probe(upstream))
            node = remote_node(serving.under_test, upstream.url, **options)
            await stack.enter_async_context(node)
            await probed
            yield Relay(serving, upstream)
            await serving.under_test.at_rest()


@pytest.fixture
async def relay(bare: Serving) -> AsyncIterator[Relay]:
    """One with the engine's defaults."""
    async with relaying(bare) as made:
        yield made


def deltas_of(line: str) -> list[dict[str, Any]]:
    """What one line of a stream adds to its choices."""
    if not line.startswith("data: {"):
        return []
    choices = json.loads(line.removeprefix("data: "))["choices"]
    return [choice["delta"] for choice in choices]


async def next_word(lines: AsyncIterator[str], field: str = "content") -> str:
    """The next text that a stream adds in a field."""
    while True:
        deltas = deltas_of(await anext(lines))
        if word := "".join(delta.get(field) or "" for delta in deltas):
            return word
