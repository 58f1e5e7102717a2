"""Faults of every kind in a seed's order, one after another under load; then the books are checked.

Two gateways and two nodes, so that something is always left to serve.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.product.books import bills, check_books, settled, swept
from tests.product.traffic import Answer, Load
from tests.support.product import Child, Plan, Product

# Some minutes where other work is done beside it.
pytestmark = pytest.mark.timeout(600)

SEED = 1
LEAVING = 0.2
ANSWERS_BETWEEN = 10
# A report goes to another gateway once its own is known to be dead, and PostgreSQL is there.
REPORTED_S_MAX = 15.0
PLAN = Plan(gateways=2, nodes=2, tokens_per_s=60.0)

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


async def test_whatever_fails_the_books_are_right(product: Product) -> None:
    chance = random.Random(SEED)
    drawn = chance.sample(FAULTS, len(FAULTS))
    async with Load(product.urls, product.key, seed=SEED, leaving=LEAVING) as load:
        for fault in drawn:
            await load.until(ANSWERS_BETWEEN)
            await asyncio.to_thread(fault, product, chance)
        await asyncio.to_thread(product.wait_ready)
        await load.until(ANSWERS_BETWEEN)
    print([fault.__name__ for fault in drawn])
    print(Counter((a.status, a.done, a.error.get("code"), a.broken) for a in load.answers))
    reported = [answer for answer in load.answers if not nobody_reports(product, answer)]
    await settled(product, reported)
    booked = bills()
    answers = [a for a in load.answers if a in reported or a.request in booked]
    print(f"{len(load.answers) - len(answers)} requests whose gateway and node died have no bill")
    await swept(product, answers)
    await check_books(answers)


def nobody_reports(product: Product, answer: Answer) -> bool:
    """Its gateway and its node were both killed before either can have told what it used."""

    def died(child: Child) -> bool:
        return any(answer.began_s < at < answer.ended_s + REPORTED_S_MAX for at in child.killed_s)

    name = answer.headers.get("x-sluice-node")
    return any(died(node) for node in product.nodes if node.name == name) and any(
        map(died, product.gateways)
    )
