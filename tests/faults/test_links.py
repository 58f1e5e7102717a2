"""The line between a node and its gateway breaks under streams: for a moment, and for longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx2
import pytest

from benchmarks.faults.network import Network
from tests.product.books import bills, check_books, kinds, open_holds
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import until

NODE = "node-1"
TOKENS_PER_S = 50.0
TOKENS = 150
STREAMS = (True, True, True, False)
SEEN_MIN = 5
BREAKS, BREAK_S = 2, 0.7


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture(scope="module")
def product(servers: Servers, network: Network) -> Iterator[Product]:
    plan = Plan(tokens_per_s=TOKENS_PER_S, dial=network.dial)
    with running_product(servers, plan) as product:
        yield product


@pytest.fixture(autouse=True)
def whole_again(product: Product, network: Network) -> Iterator[None]:
    yield
    network.mend(NODE)
    product.wait_ready()


async def begin(
    client: httpx2.AsyncClient, key: str
) -> tuple[list[Answer], asyncio.Future[list[Answer]]]:
    """Requests whose streams have all shown something."""
    answers = [Answer(streamed=streamed) for streamed in STREAMS]
    bodies = [make_body(tokens=TOKENS, stream=streamed) for streamed in STREAMS]
    pairs = zip(answers, bodies, strict=True)
    asked = asyncio.gather(*(ask(client, key, body, answer=answer) for answer, body in pairs))
    streamed = [answer for answer in answers if answer.streamed]
    await until(lambda: all(answer.tokens >= SEEN_MIN for answer in streamed))
    await until(lambda: open_holds() == len(answers))
    return answers, asked


async def test_a_line_that_breaks_for_a_moment_costs_nobody_anything(
    product: Product, network: Network
) -> None:
    before = product.nodes[0].log.count("link resumed"), product.gateways[0].log.count("node lost")
    async with open_client(product.urls[0]) as client:
        undisturbed = await ask(client, product.key, make_body(tokens=TOKENS))
        answers, done = await begin(client, product.key)
        for _ in range(BREAKS):
            network.sever(NODE)
            await asyncio.sleep(BREAK_S)
            network.mend(NODE)
            await asyncio.sleep(BREAK_S)
        await done
    assert all(answer.whole for answer in answers), [a for a in answers if not a.whole]
    assert {answer.text for answer in answers} == {undisturbed.text}
    assert {answer.tokens for answer in answers} == {TOKENS}
    await until(lambda: open_holds() == 0)
    for answer in answers:
        assert kinds(answer.request) == ["hold", "settle"]
        assert bills()[answer.request].sources == {"gateway"}
    await check_books(answers)
    after = product.nodes[0].log.count("link resumed"), product.gateways[0].log.count("node lost")
    assert after == (before[0] + BREAKS, before[1])


async def test_a_line_that_stays_broken_ends_its_streams_with_an_error_and_a_bill(
    product: Product, network: Network
) -> None:
    async with open_client(product.urls[0]) as client:
        answers, done = await begin(client, product.key)
        network.sever(NODE)
        await done
        late = await ask(client, product.key, make_body())
    await until(lambda: open_holds() == 0)
    booked = bills()
    for answer in answers:
        if answer.streamed:
            assert (answer.done, answer.error["code"]) == (False, "node_lost")
            assert booked[answer.request].output == answer.tokens < TOKENS
        else:
            assert not answer.whole and answer.status >= 500
    assert late.error["code"] == "no_node_available"
    await check_books([*answers, late])
