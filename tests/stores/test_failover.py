"""PostgreSQL's primary dies under load and a standby takes its place: requests go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.product.books import all_charged, bills, check_books
from tests.product.traffic import Load
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.standby import Pair, standing_by
from tests.support.stores import database_urls, doctor_says

pytestmark = pytest.mark.timeout(300)

BEFORE, AFTER = 40, 60


@pytest.fixture
def pair(servers: Servers) -> Iterator[Pair]:
    with standing_by(servers) as pair:
        yield pair


@pytest.fixture
def product(servers: Servers, pair: Pair) -> Iterator[Product]:
    plan = Plan(gateway_env=lambda _: database_urls(pair.place))
    with running_product(servers, plan) as product:
        yield product


async def test_nothing_that_was_acknowledged_is_lost_with_the_primary(
    product: Product, pair: Pair
) -> None:
    async with Load(product.urls, product.key) as load:
        await load.until(BEFORE)
        told = list(load.whole)
        await asyncio.to_thread(pair.fail_over)
        again_s = await load.until(AFTER)
    print(f"served again {again_s:.2f} s after the standby was promoted")
    for answer in load.answers:
        assert answer.whole or answer.error["code"] == "ledger_unavailable", answer
    assert {answer.request for answer in told} <= bills().keys()
    await all_charged(load.answers)
    await check_books(load.answers)
    assert "PostgreSQL: 1" in doctor_says(database_urls(pair.place))
