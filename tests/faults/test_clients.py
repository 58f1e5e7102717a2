"""Clients leave at any moment: generation stops at once, and the bill is what was made (F6)."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from tests.product.books import (
    STEP_TOKENS,
    bills,
    check_books,
    made_max,
    open_holds,
    wrong_bill,
)
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.money import rows
from tests.support.product import Plan, Product
from tests.support.waiting import until

CLIENTS = 50
SEED = 11
# A step takes half a second: more than it takes to tell the node that a client has left.
TOKENS_PER_S = 2.0
TOKENS = 500
LEAVES_S_MAX = 4.0
COUNTS = "SELECT count(*) FILTER (WHERE kind = 'hold'), count(*) FROM transfers WHERE slot < 2"


async def leave_early(product: Product, answer: Answer, after_s: float) -> None:
    """Ask for far more than there is time for, and hang up."""
    body = make_body(tokens=TOKENS, stream=answer.streamed)
    async with open_client(product.urls[0]) as client:
        answer.began_s = time.monotonic()
        try:
            async with asyncio.timeout(after_s):
                await ask(client, product.key, body, answer=answer)
        except TimeoutError:
            answer.ended_s = time.monotonic()


@pytest.mark.parametrize("product", [Plan(tokens_per_s=TOKENS_PER_S)], indirect=True)
async def test_p3_clients_that_leave_pay_for_what_was_made_and_no_more(product: Product) -> None:
    """P3: a disconnect ends generation within one step; what was generated is billed, no more."""
    chance = random.Random(SEED)
    answers = [Answer(streamed=n % 2 == 0) for n in range(CLIENTS)]
    await asyncio.gather(
        *(leave_early(product, answer, chance.uniform(0.0, LEAVES_S_MAX)) for answer in answers)
    )
    began_s = time.monotonic()
    await until(lambda: open_holds() == 0)
    print(f"all settled {time.monotonic() - began_s:.2f} s after the last client left")
    booked = bills()
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
    """The node has nothing to drain: no orphan goes on generating."""
    (node,) = product.nodes
    assert await asyncio.to_thread(node.stop) == 0
    assert "draining jobs=0" in node.log
