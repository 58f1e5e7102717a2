"""Faults of every kind in a seed's order, one after another under load; then the books are checked.

Two gateways and two nodes, so that something is always left to serve.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.product.books import bills, check_books, open_holds, swept
from tests.product.traffic import Answer, Load
from tests.support.product import EXPIRED_S_MAX, Child, Plan, Product
from tests.support.waiting import until

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

SEEDS = (1, 2)
LEAVING = 0.2
ANSWERS_BETWEEN = 10
# A report goes to another gateway once its own is known to be dead, and PostgreSQL is there.
REPORTED_S_MAX = 15.0
PLAN = Plan(gateways=2, nodes=2, tokens_per_s=60.0, sweeps=True)

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


@pytest.mark.parametrize("product", [PLAN], indirect=True)
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
    await until(lambda: open_holds() == 0, EXPIRED_S_MAX)
    booked = bills()
    answers = [a for a in load.answers if a.request in booked or not nobody_reports(product, a)]
    print(f"{len(load.answers) - len(answers)} requests whose gateway and node died have no bill")
    await swept(answers)
    await check_books(answers)


def nobody_reports(product: Product, answer: Answer) -> bool:
    """Its gateway and its node were both killed before either can have told what it used."""

    def died(child: Child) -> bool:
        return any(answer.began_s < at < answer.ended_s + REPORTED_S_MAX for at in child.killed_s)

    name = answer.headers.get("x-sluice-node")
    return any(died(node) for node in product.nodes if node.name == name) and any(
        map(died, product.gateways)
    )
