"""Nodes die before and after the first token (F1, F2; P7 in part), and clients leave (F6)."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from tests.product.books import (
    STEP_TOKENS,
    bills,
    check_books,
    kinds,
    made_max,
    open_holds,
    wrong_bill,
)
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import rows
from tests.support.product import Plan, Product
from tests.support.waiting import until

REQUESTS = 12
# The first token comes after half a second, and each of the next after another half.
TOKENS_PER_S = 2.0
PLAN = Plan(nodes=2, tokens_per_s=TOKENS_PER_S)
SLOW_TOKENS = 3
# They must not end before the others are on their way.
BEGUN_TOKENS = 8
LONG_TOKENS = 400
SEEN_MIN = 3
CLIENTS = 50
SEED = 11
LEAVES_S_MAX = 4.0
COUNTS = "SELECT count(*) FILTER (WHERE kind = 'hold'), count(*) FROM transfers WHERE slot < 2"
# A busy machine takes its time; whoever waits for a node waits longer.
AT_ONCE_S_MAX = 5.0


class Asked:
    """Requests under way at once, whose answers can be looked at while they come."""

    def __init__(self, product: Product, *, tokens: int, streams: tuple[bool, ...]) -> None:
        self.answers = [Answer(streamed=streams[n % len(streams)]) for n in range(REQUESTS)]
        self._key = product.key
        self._tokens = tokens
        # One for all: to make it takes longer than to ask.
        self._client = open_client(product.urls[0])
        self._tasks = [asyncio.create_task(self._ask(answer)) for answer in self.answers]

    async def done(self) -> list[Answer]:
        """All answers, each read to its end."""
        answers = await asyncio.gather(*self._tasks)
        await self._client.aclose()
        return answers

    async def _ask(self, answer: Answer) -> Answer:
        body = make_body(tokens=self._tokens, stream=answer.streamed)
        return await ask(self._client, self._key, body, answer=answer)


def dispatched(number: int) -> Callable[[], bool]:
    """So many requests are held, so each is on its way to a node or there."""
    return lambda: open_holds() >= number


async def test_a_killed_node_costs_only_time_where_nothing_had_reached_the_client(
    product: Product,
) -> None:
    """Neither before the first token nor after it, of whole answers: what was not out is made again
    elsewhere, and charged once. Streams that had begun there end with an error.
    """
    begun = Asked(product, tokens=BEGUN_TOKENS, streams=(True, False))
    streamed = [answer for answer in begun.answers if answer.streamed]
    await until(lambda: all(answer.tokens for answer in streamed))
    waiting = Asked(product, tokens=SLOW_TOKENS, streams=(True, False))
    await until(dispatched(2 * REQUESTS))
    assert not any(answer.tokens for answer in waiting.answers)
    # One that has some of them for sure, however they were spread.
    dead = streamed[0].headers["x-sluice-node"]
    (killed,) = [node for node in product.nodes if node.name == dead]
    killed.kill()
    answers = await waiting.done()
    assert all(answer.whole for answer in answers), [a for a in answers if not a.whole]
    assert {answer.headers["x-sluice-node"] for answer in answers} == {"node-1", "node-2"} - {dead}
    answers += await begun.done()
    assert all(answer.whole for answer in begun.answers if not answer.streamed)
    for answer in streamed:
        if answer.headers["x-sluice-node"] == dead:
            assert not answer.whole and answer.error["code"] == "node_lost"
        else:
            assert answer.whole
    await check_books(answers)


async def test_p7_a_node_killed_after_the_first_token_ends_the_stream_honestly(
    product: Product,
) -> None:
    """P7: no retry once tokens are out; a typed error, no end mark, and a bill for what came."""
    asked = Asked(product, tokens=LONG_TOKENS, streams=(True,))
    await until(lambda: all(answer.tokens >= SEEN_MIN for answer in asked.answers))
    for node in product.nodes:
        node.kill()
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
    await asyncio.to_thread(product.wait_ready, 1)
    async with open_client(product.urls[0]) as client:
        assert (await ask(client, product.key, make_body())).whole


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


async def leave_early(product: Product, answer: Answer, after_s: float) -> None:
    """Ask for far more than there is time for, and hang up."""
    body = make_body(tokens=LONG_TOKENS, stream=answer.streamed)
    async with open_client(product.urls[0]) as client:
        answer.began_s = time.monotonic()
        try:
            async with asyncio.timeout(after_s):
                await ask(client, product.key, body, answer=answer)
        except TimeoutError:
            answer.ended_s = time.monotonic()


async def test_p3_clients_that_leave_pay_for_what_was_made_and_no_more(
    product: Product,
) -> None:
    """P3: a disconnect ends generation within one step; what was generated is billed, no more."""
    chance, before = random.Random(SEED), bills().keys()
    answers = [Answer(streamed=n % 2 == 0) for n in range(CLIENTS)]
    await asyncio.gather(
        *(leave_early(product, answer, chance.uniform(0.0, LEAVES_S_MAX)) for answer in answers)
    )
    began_s = time.monotonic()
    await until(lambda: open_holds() == 0)
    print(f"all settled {time.monotonic() - began_s:.2f} s after the last client left")
    booked = {request: bill for request, bill in bills().items() if request not in before}
    for answer in answers:
        assert not answer.whole
        bill = booked.get(answer.request)
        assert not wrong_bill(answer, bill, most=made_max(answer, TOKENS_PER_S)), (answer, bill)
        if answer.streamed and bill is not None:
            assert bill.output <= answer.tokens + STEP_TOKENS
    # A client that left before its headers knows no id: those are bounded together.
    most = sum(made_max(answer, TOKENS_PER_S) for answer in answers)
    assert sum(bill.output for bill in booked.values()) <= most
    assert any(answer.streamed and answer.tokens for answer in answers)
    ((held, lines),) = rows(COUNTS)
    assert lines == 2 * held > 0
    await check_books(answers)
    await check_idle(product)


async def check_idle(product: Product) -> None:
    """No node has anything to drain: no orphan goes on generating."""
    for node in product.nodes:
        said = len(node.log)
        assert await asyncio.to_thread(node.stop) == 0
        assert "draining jobs=0" in node.log[said:]
