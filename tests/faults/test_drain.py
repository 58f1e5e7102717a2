"""A gateway or a node that is asked to stop finishes what it has begun (F22)."""

from __future__ import annotations

import asyncio
import signal

from tests.faults.test_nodes import Asked
from tests.product.books import check_books
from tests.product.traffic import ask, make_body, open_client
from tests.support.product import Plan, Product
from tests.support.waiting import until

PLAN = Plan(nodes=2, tokens_per_s=100.0)
TOKENS = 150
# More than the time that a stopped gateway gives to what is under way.
ENDLESS_TOKENS = 1_000
SEEN_MIN = 5
# Long enough for the first signal to have been taken.
TOGETHER_S = 0.05
ENDED_BY_SIGTERM = (0, -signal.SIGTERM)


async def test_first_a_node_and_then_the_gateway_stop_without_losing_a_stream(
    product: Product,
) -> None:
    asked = Asked(product, tokens=TOKENS, streams=(True, False))
    streamed = [answer for answer in asked.answers if answer.streamed]
    await until(lambda: all(answer.tokens >= SEEN_MIN for answer in streamed))
    # As of a parent that ends with its threads: each of them sends one.
    product.nodes[0].signal(signal.SIGTERM)
    await asyncio.sleep(TOGETHER_S)
    product.nodes[0].signal(signal.SIGTERM)
    answers = await asked.done()
    assert all(answer.whole for answer in answers), [a for a in answers if not a.whole]
    assert {answer.headers["x-sluice-node"] for answer in answers} == {"node-1", "node-2"}
    assert await asyncio.to_thread(product.nodes[0].wait) == 0

    asked = Asked(product, tokens=TOKENS, streams=(True, False))
    streamed = [answer for answer in asked.answers if answer.streamed]
    async with open_client(product.urls[0]) as client:
        assert (await ask(client, product.key, make_body())).whole
        await until(lambda: all(answer.tokens >= SEEN_MIN for answer in streamed))
        product.gateways[0].signal(signal.SIGTERM)
        await until(lambda: product.readiness().get("ready") is False)
        late = await ask(client, product.key, make_body())
    assert (late.status, late.error["code"]) == (503, "gateway_stopping")
    assert (late.headers["retry-after"], late.headers["connection"]) == ("1", "close")
    answers += await asked.done()
    assert all(answer.whole for answer in answers), [a for a in answers if not a.whole]
    assert await asyncio.to_thread(product.gateways[0].wait) in ENDED_BY_SIGTERM
    await check_books(answers)


async def test_a_second_signal_does_not_wait(product: Product) -> None:
    """What is cut then ends as when a node is lost: typed, without end mark, and charged."""
    (gateway,) = product.gateways
    asked = Asked(product, tokens=ENDLESS_TOKENS, streams=(True,))
    await until(lambda: all(answer.tokens >= SEEN_MIN for answer in asked.answers))
    gateway.signal(signal.SIGTERM)
    await until(lambda: product.readiness().get("ready") is False)
    assert not any(answer.error for answer in asked.answers)
    gateway.signal(signal.SIGTERM)
    answers = await asked.done()
    for answer in answers:
        assert not answer.done and answer.error["code"] == "node_lost", answer
    assert await asyncio.to_thread(gateway.wait) in ENDED_BY_SIGTERM
    await check_books(answers)
    # They would wait a while for a gateway to acknowledge their reports, and none is left.
    for node in product.nodes:
        node.kill()
