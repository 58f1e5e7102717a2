"""A gateway is killed under load: what was open is settled, once, by whoever lives (F14)."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from tests.product.books import bills, check_books, expired, open_holds, swept
from tests.product.traffic import Answer, Load, ask, make_body, open_client
from tests.support.product import Plan, Product
from tests.support.waiting import until

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

ANSWERS_BEFORE = 15
CREDITS = 8
PLAN = Plan(gateways=2, nodes=2, seeds=1, tokens_per_s=60.0, credits=CREDITS)
# Its heartbeats cease to count, and nodes have heard nothing else for a while.
LONG_TOKENS = 120
STREAMS_CUT = 4


async def test_of_two_gateways_one_dies_and_the_other_serves_on_and_settles_its_requests(
    product: Product,
) -> None:
    """The one that dies was found by the nodes themselves; the other is their seed. Then that one
    is killed as well, when nobody else is there, and comes back.
    """
    steady = Load(product.urls[:1], product.key, seed=6)
    doomed = Load(product.urls[1:], product.key, seed=7)
    async with steady, doomed, open_client(product.urls[1]) as client:
        await steady.until(ANSWERS_BEFORE)
        cut = Streams(product, client, count=STREAMS_CUT)
        await until(lambda: all(answer.tokens for answer in cut.answers))
        product.gateways[1].kill()
        await cut.done()
        await doomed.stop()
        await steady.until(2 * ANSWERS_BEFORE)
    assert all(answer.broken and not answer.whole for answer in cut.answers)
    assert all(answer.whole for answer in steady.answers), steady.answers
    # All that had begun on a node is charged, though its own gateway never comes back.
    begun = {answer.request for answer in cut.answers}
    await until(lambda: begun <= bills().keys())
    assert {source for name in begun for source in bills()[name].sources} == {"node"}
    answers = [*steady.answers, *doomed.answers, *cut.answers]
    await swept(product, answers)
    await check_books(answers)
    await check_credits(product)
    await check_a_gateway_that_comes_back(product)


async def check_a_gateway_that_comes_back(product: Product) -> None:
    """The only one: it loses and doubles nothing."""
    gateway, before, charged = product.gateways[0], expired(), bills().keys()
    async with Load(product.urls[:1], product.key, seed=5) as load:
        await load.until(ANSWERS_BEFORE)
        gateway.kill()
        left = open_holds()
        gateway.start()
        await load.until(ANSWERS_BEFORE)
    print(f"{left} holds were open when the gateway was killed")
    assert any(answer.broken for answer in load.answers)
    await swept(product, load.answers, before)
    await check_books(load.answers)
    sources = [bill.sources for request, bill in bills().items() if request not in charged]
    assert frozenset().union(*sources) == {"gateway", "node"}


class Streams:
    """Long streams at one gateway, all at once."""

    def __init__(self, product: Product, client: httpx2.AsyncClient, *, count: int) -> None:
        self.answers = [Answer(streamed=True) for _ in range(count)]
        body = make_body(tokens=LONG_TOKENS)
        self._tasks = [
            asyncio.create_task(ask(client, product.key, body, answer=answer))
            for answer in self.answers
        ]

    async def done(self) -> None:
        """Each is read to its end."""
        await asyncio.gather(*self._tasks)


async def check_credits(product: Product) -> None:
    """The nodes take as many jobs from the one gateway as they take at all: none leaked."""
    async with open_client(product.urls[0]) as client:
        full = Streams(product, client, count=len(product.nodes) * CREDITS)
        await until(lambda: all(answer.tokens for answer in full.answers))
        assert not any(answer.ended_s for answer in full.answers)
        await full.done()
    assert all(answer.whole for answer in full.answers), full.answers
