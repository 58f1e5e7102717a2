"""A gateway is killed under load and started again: what was open is settled, once (F14)."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.billing.services import sweep_holds
from tests.product.books import bills, check_books, open_holds
from tests.product.traffic import Load
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import Plan, Product

KILLS = 3
ANSWERS_BEFORE = 15
REPORTS_QUIET_S = 1.0


@pytest.mark.parametrize("product", [Plan(nodes=2, tokens_per_s=60.0)], indirect=True)
async def test_a_killed_gateway_loses_and_doubles_nothing(product: Product) -> None:
    (gateway,) = product.gateways
    async with Load(product.urls, product.key, seed=5) as load:
        for _ in range(KILLS):
            await load.until(ANSWERS_BEFORE)
            gateway.kill()
            left = open_holds()
            gateway.start()
            await asyncio.to_thread(product.wait_ready)
            print(f"{left} holds were open when the gateway was killed")
        await load.until(ANSWERS_BEFORE)
    broken = [answer for answer in load.answers if answer.broken]
    assert broken
    await asyncio.sleep(REPORTS_QUIET_S)
    await expire_what_is_left()
    await check_books(load.answers)
    sources = {source for bill in bills().values() for source in bill.sources}
    assert sources == {"gateway", "node"}


async def expire_what_is_left() -> None:
    """Holds of requests that reached no node have no report: the sweeper's work, when due."""
    rows("UPDATE open_holds SET expires_at = now() - interval '1 s'")
    swept = await orm(sweep_holds)()
    print(f"{swept.holds} holds expired")
    assert open_holds() == 0
