"""C5: a rule sends a model's requests to another pool, and the margin shows their revenue there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from controlplane.billing.ledger.services import seal_ledger
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.services import model_change
from controlplane.composed.demo import MODEL, POOL
from controlplane.core.audit.entries import OPERATOR
from tests.product.books import CHARGES
from tests.product.traffic import ask, make_body, open_client
from tests.support.money import rows
from tests.support.product import Plan, Product, running_product
from tests.support.rules import publish, rule
from tests.support.servers import Servers
from tests.support.waiting import wait_for

HOME = "home"
REQUESTS = 5


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    """The model's home is a pool without nodes; a rule sends its requests to the one that has."""
    with running_product(servers, Plan(started=False)) as product:
        pool_set(actor=OPERATOR, draft=PoolDraft(name=HOME))
        model_change(actor=OPERATOR, draft=replace(MODEL, pool=HOME))
        elsewhere = {"targets": [{"model": MODEL.name, "pool": POOL}]}
        publish(rule("elsewhere", MODEL.name, match={"tasks": ["generate"]}, steps=[elsewhere]))
        product.start()
        product.wait_ready()
        yield product


async def _traffic(product: Product) -> None:
    async with open_client(product.urls[0]) as client:
        for _ in range(REQUESTS):
            answer = await ask(client, product.key, make_body())
            assert answer.whole, answer


def _pools() -> dict[str, Any]:
    operator = Client(headers={"authorization": f"Bearer {settings.OPERATOR_TOKEN}"})
    told = operator.get("/api/billing/margin").json()
    return {line["name"]: line for line in told["pools"]}


def test_revenue_is_of_the_pool_that_a_rule_chose(product: Product) -> None:
    asyncio.run(_traffic(product))
    wait_for(
        lambda: rows("SELECT sum(requests)::int FROM usage_minutes") == [(REQUESTS,)],
        "usage that is counted",
    )
    seal_ledger(datetime.now(UTC))
    ((nano, tokens),) = rows(
        "SELECT sum(amount)::bigint, sum(uncached + cached + output)::int"
        f" FROM transfers WHERE kind IN {CHARGES}"
    )
    pools = _pools()
    assert pools[POOL]["revenue_nano"] == nano > 0
    kinds = ("uncached_tokens", "cached_tokens", "output_tokens")
    assert sum(pools[POOL][kind] for kind in kinds) == tokens
    assert pools[HOME]["revenue_nano"] == 0
    # What no telemetry tells of is of the model's own pool.
    rows("DELETE FROM usage_minutes")
    rows("DELETE FROM usage_rollups")
    pools = _pools()
    assert (pools[HOME]["revenue_nano"], pools[POOL]["revenue_nano"]) == (nano, 0)
