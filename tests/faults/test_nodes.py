"""Nodes die before and after the first token, or are not there (F1, F2; P7 in part)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.product.books import bills, check_books, kinds, open_holds
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.product import Plan, Product
from tests.support.waiting import until

REQUESTS = 12
# The first token comes after half a second, and each of the next two after another half.
SLOW = Plan(nodes=2, tokens_per_s=2.0)
SLOW_TOKENS = 3
LONG_TOKENS = 400
SEEN_MIN = 5
# A busy machine takes its time; whoever waits for a node waits longer.
AT_ONCE_S_MAX = 5.0


class Asked:
    """Requests under way at once, whose answers can be looked at while they come."""

    def __init__(self, product: Product, *, tokens: int, streams: tuple[bool, ...]) -> None:
        self.answers = [Answer(streamed=streams[n % len(streams)]) for n in range(REQUESTS)]
        self._product = product
        self._tokens = tokens
        self._tasks = [asyncio.create_task(self._ask(answer)) for answer in self.answers]

    async def done(self) -> list[Answer]:
        """All answers, each read to its end."""
        return await asyncio.gather(*self._tasks)

    async def _ask(self, answer: Answer) -> Answer:
        body = make_body(tokens=self._tokens, stream=answer.streamed)
        async with open_client(self._product.urls[0]) as client:
            return await ask(client, self._product.key, body, answer=answer)


def dispatched(number: int) -> Callable[[], bool]:
    """So many requests are held, so each is on its way to a node or there."""
    return lambda: open_holds() >= number


@pytest.mark.parametrize("product", [SLOW], indirect=True)
async def test_a_node_killed_before_the_first_token_costs_only_time(product: Product) -> None:
    asked = Asked(product, tokens=SLOW_TOKENS, streams=(True, False))
    await until(dispatched(REQUESTS))
    assert not any(answer.tokens for answer in asked.answers)
    product.nodes[0].kill()
    answers = await asked.done()
    assert all(answer.whole for answer in answers), [a for a in answers if not a.whole]
    assert {answer.headers["x-sluice-node"] for answer in answers} == {"node-2"}
    await check_books(answers)


@pytest.mark.parametrize("product", [SLOW], indirect=True)
async def test_a_whole_answer_survives_a_node_killed_after_its_first_token(
    product: Product,
) -> None:
    """Nothing of it had reached the client yet, so it is made again elsewhere and charged once."""
    asked = Asked(product, tokens=SLOW_TOKENS, streams=(True, False))
    streamed = [answer for answer in asked.answers if answer.streamed]
    await until(lambda: all(answer.tokens for answer in streamed))
    # One that has some of them for sure, however they were spread.
    dead = streamed[0].headers["x-sluice-node"]
    product.nodes[("node-1", "node-2").index(dead)].kill()
    answers = await asked.done()
    assert all(answer.whole for answer in answers if not answer.streamed)
    for answer in streamed:
        if answer.headers["x-sluice-node"] == dead:
            assert not answer.whole and answer.error["code"] == "node_lost"
        else:
            assert answer.whole
    await check_books(answers)


@pytest.mark.parametrize("product", [Plan(tokens_per_s=50.0)], indirect=True)
async def test_p7_a_node_killed_after_the_first_token_ends_the_stream_honestly(
    product: Product,
) -> None:
    """P7: no retry once tokens are out; a typed error, no end mark, and a bill for what came."""
    asked = Asked(product, tokens=LONG_TOKENS, streams=(True,))
    await until(lambda: all(answer.tokens >= SEEN_MIN for answer in asked.answers))
    product.nodes[0].kill()
    answers = await asked.done()
    await until(lambda: open_holds() == 0)
    booked = bills()
    for answer in answers:
        assert (answer.status, answer.done, answer.broken) == (200, False, "")
        assert answer.error["code"] == "node_lost"
        assert SEEN_MIN <= answer.tokens < LONG_TOKENS
        assert booked[answer.request].output == answer.tokens
    await check_books(answers)
    await check_nobody_serves(product)
    product.nodes[0].start()
    await asyncio.to_thread(product.wait_ready)
    async with open_client(product.urls[0]) as client:
        assert (await ask(client, product.key, make_body())).whole


@pytest.mark.parametrize("product", [Plan(nodes=0)], indirect=True)
async def test_no_node_is_said_at_once(product: Product) -> None:
    await check_nobody_serves(product)


async def check_nobody_serves(product: Product) -> None:
    """503 without waiting, with a time to come back, and nothing left reserved."""
    async with open_client(product.urls[0]) as client:
        for stream in (True, False):
            answer = await ask(client, product.key, make_body(stream=stream))
            assert (answer.status, answer.error["code"]) == (503, "no_node_available")
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.ended_s - answer.began_s < AT_ONCE_S_MAX
            await until(lambda: open_holds() == 0)
            assert kinds(answer.request) == ["hold", "release"]
