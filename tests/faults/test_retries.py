"""A gateway is killed between charge and answer: a retry is told so, and charged no more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import httpx2
import psycopg
import pytest

from tests.product.books import bills, check_books
from tests.product.traffic import PATH, Answer, make_body, open_client
from tests.support.money import rows, superuser_dsn
from tests.support.product import Plan, Product
from tests.support.waiting import until

PLAN = Plan(gateways=2, tokens_per_s=20.0)
TOKENS = 40
# Several tokens of the slow node, and far from all of them.
GENERATES_S = 0.5
# The node's report comes once its gateway is back; the ledger's answer is told a while after it.
TOLD_S_MAX = 40.0
HELD_UP = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE application_name = 'sluice-claims' AND wait_event_type = 'Lock'"
)


@pytest.fixture(autouse=True)
def before(product: Product) -> Collection[str]:
    """What was charged before; the key may be used anew."""
    rows("DELETE FROM inference_claims")
    return bills().keys()


async def send(product: Product, client: httpx2.AsyncClient) -> httpx2.Response:
    headers = {"authorization": f"Bearer {product.key}", "idempotency-key": "one"}
    body = make_body(tokens=TOKENS, stream=False)
    return await client.post(PATH, json=body, headers=headers)


async def settled_code(product: Product, client: httpx2.AsyncClient) -> str:
    """What a retry is told once nobody is at it any more."""
    async with asyncio.timeout(TOLD_S_MAX):
        while True:
            answer = await send(product, client)
            found: str = answer.json().get("error", {}).get("code", "")
            if found != "idempotency_in_progress":
                return found
            await asyncio.sleep(float(answer.headers["retry-after"]))


def charges(before: Collection[str]) -> list[int]:
    """How often each request since then was charged."""
    return [bill.charges for request, bill in bills().items() if request not in before]


def state() -> list[str]:
    return [state for (state,) in rows("SELECT state FROM inference_claims")]


async def test_killed_while_it_generates(product: Product, before: Collection[str]) -> None:
    gateway = product.gateways[0]
    async with open_client(product.urls[0]) as client:
        running = asyncio.create_task(send(product, client))
        await until(lambda: state() == ["held"] and product.readiness()["jobs"] == 1)
        # What the node has not told the gateway by then is not charged.
        await asyncio.sleep(GENERATES_S)
        gateway.kill()
        with pytest.raises(httpx2.TransportError):
            await running
        gateway.start()
        await asyncio.to_thread(product.wait_ready)
        assert await settled_code(product, client) == "idempotency_charged"
    assert charges(before) == [1]
    await check_books(list[Answer]())


async def test_killed_after_the_charge_and_before_the_answer_is_kept(
    product: Product, before: Collection[str]
) -> None:
    """A lock on the claim holds the gateway between the two."""
    gateway = product.gateways[0]
    async with open_client(product.urls[0]) as client:
        running = asyncio.create_task(send(product, client))
        await until(lambda: state() == ["held"])
        with psycopg.connect(superuser_dsn()) as connection:
            connection.execute("SELECT 1 FROM inference_claims FOR UPDATE")
            await until(lambda: rows(HELD_UP))
            assert charges(before) == [1]
            gateway.kill()
            # What it had asked of the database goes with it.
            for (pid,) in rows(HELD_UP):
                rows("SELECT pg_terminate_backend(%s, 5000)", pid)
        with pytest.raises(httpx2.TransportError):
            await running
        assert state() == ["held"]
        gateway.start()
        await asyncio.to_thread(product.wait_ready)
        assert await settled_code(product, client) == "idempotency_charged"
    assert charges(before) == [1]
    await check_books(list[Answer]())


async def test_a_retry_may_come_to_another_gateway(
    product: Product, before: Collection[str]
) -> None:
    async with open_client(product.urls[0]) as client, open_client(product.urls[1]) as other:
        first = await send(product, client)
        second = await send(product, other)
    assert first.status_code == 200 and second.content == first.content
    assert charges(before) == [1]
