"""Faults of every kind in a seed's order, one after another under load; then the books are checked.

Two gateways and two nodes, so that something is always left to serve.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from controlplane.billing.services import sweep_holds
from tests.product.books import check_books, open_holds
from tests.product.traffic import Load
from tests.support.money import eventually, rows
from tests.support.orm import orm
from tests.support.product import Plan, Product

SEEDS = (1, 2)
LEAVING = 0.2
ANSWERS_BETWEEN = 10
# A report is repeated every 5 s, but at once on a new link: a second without news is the end.
QUIET_LOOKS = 50

Fault = Callable[[Product, random.Random], None]


def kill_a_node(product: Product, chance: random.Random) -> None:
    node = chance.choice(product.nodes)
    node.kill()
    node.start()


def kill_a_gateway(product: Product, chance: random.Random) -> None:
    gateway = chance.choice(product.gateways)
    gateway.kill()
    gateway.start()


def stop_a_gateway(product: Product, chance: random.Random) -> None:
    gateway = chance.choice(product.gateways)
    gateway.stop()
    gateway.start()


def kill_postgresql(product: Product, chance: random.Random) -> None:
    product.servers.postgres.kill()
    product.servers.postgres.start()


def stop_postgresql(product: Product, chance: random.Random) -> None:
    product.servers.postgres.stop()
    product.servers.postgres.start()


def kill_redis(product: Product, chance: random.Random) -> None:
    product.servers.redis.kill()
    product.servers.redis.start()


def kill_a_gateway_and_postgresql(product: Product, chance: random.Random) -> None:
    gateway = chance.choice(product.gateways)
    gateway.kill()
    kill_postgresql(product, chance)
    gateway.start()


FAULTS: tuple[Fault, ...] = (
    kill_a_node,
    kill_a_gateway,
    stop_a_gateway,
    kill_postgresql,
    stop_postgresql,
    kill_redis,
    kill_a_gateway_and_postgresql,
)


@pytest.mark.parametrize("product", [Plan(gateways=2, nodes=2, tokens_per_s=60.0)], indirect=True)
@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_fails_the_books_are_right(product: Product, seed: int) -> None:
    chance = random.Random(seed)
    drawn = chance.sample(FAULTS, len(FAULTS))
    async with Load(product.urls, product.key, seed=seed, leaving=LEAVING) as load:
        for fault in drawn:
            await load.until(ANSWERS_BETWEEN)
            await asyncio.to_thread(fault, product, chance)
        await asyncio.to_thread(product.wait_ready)
        await load.until(ANSWERS_BETWEEN)
    print([fault.__name__ for fault in drawn])
    print(Counter((a.status, a.done, a.error.get("code"), a.broken) for a in load.answers))
    await resolve_all()
    await check_books(load.answers)


async def resolve_all() -> None:
    """Reports settle what nodes had; the sweeper, when it is due, what never reached one."""
    seen = [open_holds()]

    def quiet() -> bool:
        seen.append(open_holds())
        return seen[-1] == 0 or len(set(seen[-QUIET_LOOKS:])) == 1 and len(seen) > QUIET_LOOKS

    await eventually(quiet)
    rows("UPDATE open_holds SET expires_at = now() - interval '1 s'")
    swept = await orm(sweep_holds)()
    print(f"{seen[0]} holds were open at the end, {swept.holds} of them expired")
