"""C3, as far as it exists: limits and budgets hold across gateway processes, and to the unit."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator

import pytest

from controlplane.billing.budgets.models import BudgetScope
from controlplane.billing.budgets.services import budget_set
from controlplane.bridge.money.standings import REMEMBERED_S
from controlplane.core.audit.entries import OPERATOR
from controlplane.quotas.services import rate_limit_set
from controlplane.tenants.keys import CreatedKey
from tests.product.books import check_books, open_holds
from tests.product.test_keys import make_key
from tests.product.traffic import Answer, Load, ask, make_body, open_client
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import until

GATEWAYS = 2
# A minute's limit this low gives back one request in ten seconds: longer than the burst takes.
REQUESTS_PER_MIN = 6
DIVIDED_PER_MIN, SERVED_DIVIDED = 600, 10
MINUTE_S = 60.0
BURST = 40
AFFORDABLE = 7
TOKENS = 20
TOKENS_PER_S = 10.0
# A refusal goes out without figures that take too long.
FIGURES_TRIES_MAX = 20


@pytest.fixture(scope="module")
def running(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(gateways=GATEWAYS, tokens_per_s=TOKENS_PER_S)) as product:
        yield product


@pytest.fixture
def product(running: Product) -> Iterator[Product]:
    running.mend()
    yield running
    running.print_logs()


@pytest.fixture
async def key(product: Product) -> CreatedKey:
    """One that no other test limits."""
    return await make_key(product)


async def burst(product: Product, key: CreatedKey, *, tokens: int, stream: bool) -> list[Answer]:
    """Many requests at once, spread over all gateways."""
    clients = [open_client(url) for url in product.urls]
    body = make_body(tokens=tokens, stream=stream)
    asked = [ask(clients[n % len(clients)], key.secret, body) for n in range(BURST)]
    answers = await asyncio.gather(*asked)
    for client in clients:
        await client.aclose()
    return answers


async def limit(product: Product, key: CreatedKey, *, requests_per_min: int) -> None:
    """In force at every gateway."""
    version = product.readiness()["configuration_version"]
    await orm(rate_limit_set)(
        actor=OPERATOR, subject=key.key, requests_per_min=requests_per_min, tokens_per_min=None
    )
    await wait_for_news(product, version)


async def wait_for_news(product: Product, version_before: int) -> None:
    """Every gateway has read the configuration anew."""
    await until(
        lambda: all(
            product.readiness(number)["configuration_version"] > version_before
            for number in range(GATEWAYS)
        )
    )


async def test_c3_two_gateways_serve_exactly_the_limit(product: Product, key: CreatedKey) -> None:
    await limit(product, key, requests_per_min=REQUESTS_PER_MIN)
    answers = await burst(product, key, tokens=1, stream=False)
    assert sum(answer.whole for answer in answers) == REQUESTS_PER_MIN
    for answer in answers:
        assert answer.headers["x-ratelimit-limit-requests"] == str(REQUESTS_PER_MIN)
        if answer.whole:
            continue
        assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
        assert answer.error["type"] == "requests"
        assert answer.headers["x-ratelimit-remaining-requests"] == "0"
        assert answer.headers["x-ratelimit-reset-requests"]
        assert 1 <= int(answer.headers["retry-after"]) <= 60 // REQUESTS_PER_MIN
        assert int(answer.headers["retry-after-ms"]) <= int(answer.headers["retry-after"]) * 1000
        assert "x-should-retry" not in answer.headers
    await check_books(answers)


async def test_c3_a_burst_on_the_last_credit_admits_exactly_what_it_affords(
    product: Product, key: CreatedKey
) -> None:
    async with open_client(product.urls[0]) as client:
        sample = await ask(client, key.secret, make_body(tokens=TOKENS))
    ((held,),) = rows(
        "SELECT amount FROM transfers WHERE kind = 'hold' AND request = %s",
        uuid.UUID(hex=sample.request),
    )
    version = product.readiness()["configuration_version"]
    limit_nano = AFFORDABLE * held
    budget = key.key.organization_id, key.key.id
    await orm(budget_set)(*budget, scope=BudgetScope.KEY, limit_nano=limit_nano)
    await wait_for_news(product, version)
    answers = await burst(product, key, tokens=TOKENS, stream=True)
    assert sum(answer.whole for answer in answers) == AFFORDABLE
    for answer in answers:
        if not answer.whole:
            assert (answer.status, answer.error["code"]) == (429, "insufficient_quota")
            assert answer.error["type"] == "insufficient_quota"
            assert answer.headers["x-should-retry"] == "false"
    assert open_holds() == 0
    await check_books(answers)
    ((posted, lim),) = rows("SELECT posted, lim FROM budgets WHERE id = %s", key.key.id)
    assert posted <= lim == limit_nano
    await orm(budget_set)(*budget, scope=BudgetScope.KEY, limit_nano=1)
    # Figures that an earlier refusal asked for are forgotten.
    await asyncio.sleep(REMEMBERED_S)
    async with open_client(product.urls[0]) as client:
        for _ in range(FIGURES_TRIES_MAX):
            refused = await ask(client, key.secret, make_body(tokens=TOKENS))
            if "Rate limits are temporarily unavailable" in refused.error["message"]:
                continue
            assert (refused.status, refused.error["code"]) == (429, "insufficient_quota")
            if "are left" in refused.error["message"]:
                break
    assert "0.000000000 USD of 0.000000001 USD is left" in refused.error["message"]


async def test_c3_without_redis_limits_are_divided_and_never_exceeded(
    product: Product, key: CreatedKey, servers: Servers
) -> None:
    """C3: two gateways together serve no faster than the limit while Redis is away."""
    await limit(product, key, requests_per_min=DIVIDED_PER_MIN)
    away_s = time.monotonic()
    servers.redis.stop()
    numbers = range(GATEWAYS)
    await until(lambda: not any(product.readiness(n)["limits_shared"] for n in numbers))
    async with Load(product.urls, key.secret) as load:
        await load.until(SERVED_DIVIDED)
    elapsed_s = time.monotonic() - away_s
    print(f"{len(load.whole)} served in {elapsed_s:.2f} s at {DIVIDED_PER_MIN} a minute")
    assert len(load.whole) <= DIVIDED_PER_MIN * elapsed_s / MINUTE_S
    refused = load.refused("rate_limit_exceeded")
    assert refused and len(refused) + len(load.whole) == len(load.answers)
