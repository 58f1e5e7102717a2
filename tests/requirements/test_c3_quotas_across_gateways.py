"""C3 over several gateways: keys, rules, limits and budgets are one, whichever gateway is asked.

Two real gateway processes and one node that was told of the first alone. How exact limits and
budgets are under a burst is also in `tests/product/test_limits.py`; here a limit is used up at both
gateways in turn, where a share of it each would be seen at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

from controlplane.composed.demo import MODEL
from controlplane.core.audit.entries import OPERATOR
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import CreatedKey, apikey_create, apikey_revoke
from controlplane.tenants.models import Organization, Project
from tests.product.traffic import ask, make_body, open_clients
from tests.support.orm import orm
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.rules import generates, publish
from tests.support.servers import Servers
from tests.support.waiting import until

NEWS_S_MAX = 2.0
TOKENS_PER_S = 100.0
REQUESTS_PER_MIN = 4
AT_ONCE, MANY = 3, 16
# Longer than it takes to ask for all of them.
LONG_TOKENS = 400
BODY = make_body(tokens=1, stream=False)


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(gateways=2, seeds=1, tokens_per_s=TOKENS_PER_S)) as product:
        yield product


@pytest.fixture
async def clients(product: Product) -> AsyncIterator[list[httpx2.AsyncClient]]:
    async with open_clients(product.urls) as made:
        yield made


@pytest.fixture
async def key(product: Product, clients: list[httpx2.AsyncClient]) -> CreatedKey:
    """A key of the demo's project for one test, which both gateways know."""

    def make() -> CreatedKey:
        demo = demo_key()
        of = Project(id=demo.project_id, organization_id=demo.organization_id)
        return apikey_create(actor=OPERATOR, project=of, label="test")

    made = await orm(make)()

    async def both_serve() -> bool:
        return all([(await ask(client, made.secret, BODY)).whole for client in clients])

    await until(both_serve)
    return made


async def test_c3_a_limit_is_counted_once_for_both(
    product: Product, clients: list[httpx2.AsyncClient], key: CreatedKey
) -> None:
    before = product.readiness()["configuration_version"]
    await orm(rate_limit_set)(
        actor=OPERATOR, subject=key.key, requests_per_min=REQUESTS_PER_MIN, tokens_per_min=None
    )
    await until(lambda: min(versions(product)) > before)
    answers = [await ask(clients[n % 2], key.secret, BODY) for n in range(REQUESTS_PER_MIN + 2)]
    assert [answer.status for answer in answers] == [200] * REQUESTS_PER_MIN + [429] * 2
    left = [int(answer.headers["x-ratelimit-remaining-requests"]) for answer in answers]
    assert left == [*reversed(range(REQUESTS_PER_MIN)), 0, 0]


async def test_c3_requests_at_once_are_counted_over_both_and_come_back(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    before = product.readiness()["configuration_version"]
    organization = Organization(id=demo_key().organization_id)
    await orm(rate_limit_set)(actor=OPERATOR, subject=organization, concurrency=AT_ONCE)
    await until(lambda: min(versions(product)) > before)
    long = make_body(tokens=LONG_TOKENS, stream=False)
    asked = [asyncio.ensure_future(ask(clients[n % 2], product.key, long)) for n in range(MANY)]
    answers = await asyncio.gather(*asked)
    assert sum(answer.whole for answer in answers) == AT_ONCE
    for answer in answers:
        if not answer.whole:
            assert (answer.status, answer.error["type"]) == (429, "concurrency")
            assert answer.error["code"] == "rate_limit_exceeded"
            assert answer.headers["x-ratelimit-limit-concurrency"] == str(AT_ONCE)
            assert answer.headers["x-ratelimit-remaining-concurrency"] == "0"

    async def served() -> bool:
        return all([(await ask(client, product.key, BODY)).whole for client in clients])

    await until(served)
    before = product.readiness()["configuration_version"]
    await orm(rate_limit_set)(actor=OPERATOR, subject=organization)
    await until(lambda: min(versions(product)) > before)


async def test_c3_a_revoked_key_opens_neither_within_two_seconds(
    clients: list[httpx2.AsyncClient], key: CreatedKey
) -> None:
    async def both_refuse() -> bool:
        return all([(await ask(client, key.secret, BODY)).status == 401 for client in clients])

    assert await orm(apikey_revoke)(actor=OPERATOR, key=key.key)
    assert await until(both_refuse) < NEWS_S_MAX


async def test_c3_a_published_rule_is_followed_by_both_within_two_seconds(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    async def both_follow() -> bool:
        answers = [await ask(client, product.key, BODY) for client in clients]
        assert all(answer.whole for answer in answers)
        return all(answer.headers["x-sluice-route"] == "everybody@1" for answer in answers)

    assert not await both_follow()
    await orm(publish)(generates("everybody", MODEL.name))
    assert await until(both_follow) < NEWS_S_MAX


def versions(product: Product) -> list[int]:
    return [product.readiness(n)["configuration_version"] for n in range(len(product.urls))]
