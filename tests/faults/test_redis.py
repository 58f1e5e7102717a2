"""Redis goes away under load and comes back: no restart, nobody is refused (F8)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from controlplane.embedded.redis_server import RedisServer
from tests.product.books import check_books
from tests.product.traffic import Load
from tests.support.product import Plan, Product
from tests.support.servers import Servers
from tests.support.waiting import until

PLAN = Plan(tokens_per_s=100.0)

Ending = Callable[[RedisServer], None]
ENDINGS = pytest.mark.parametrize(
    "end", [lambda s: s.stop(), lambda s: s.kill()], ids=["stop", "kill"]
)


@ENDINGS
async def test_redis_goes_and_comes_back_under_load(
    product: Product, servers: Servers, end: Ending
) -> None:
    async with Load(product.urls, product.key) as load:
        await load.until(20)
        await asyncio.to_thread(end, servers.redis)
        await until(lambda: product.readiness()["limits_shared"] is False)
        assert product.readiness()["degraded"]
        await load.until(40)
        assert product.readiness()["ready"] is True
        await asyncio.to_thread(servers.redis.start)
        began_s = time.monotonic()
        await until(lambda: product.readiness()["limits_shared"] is True)
        assert not product.readiness()["degraded"]
        print(f"limits shared again {time.monotonic() - began_s:.2f} s after Redis was back")
        await load.until(40)
    assert all(answer.whole for answer in load.answers), [a for a in load.answers if not a.whole]
    await check_books(load.answers)
