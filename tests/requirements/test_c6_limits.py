"""C6 for limits and prices: drafted, replayed over recorded traffic, in shadow, published, undone.

Two real gateway processes with one node; the operator works by the API, as a program would.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from controlplane.composed.demo import MODEL
from controlplane.kernel.ids import public_id
from controlplane.routing.traffic import SETTLE
from tests.product.traffic import ask, make_body, open_clients
from tests.support.money import rows
from tests.support.operations import operate
from tests.support.orm import orm
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.servers import Servers
from tests.support.waiting import until

REQUESTS, ALLOWED = 12, 5
BODY = make_body(tokens=1, stream=False)
DEAR = {"input_pico": 300_000, "cached_pico": 60_000, "output_pico": 1_200_000}


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(gateways=2)) as product:
        yield product


@pytest.fixture
async def clients(product: Product) -> AsyncIterator[list[httpx2.AsyncClient]]:
    """One for each gateway."""
    async with open_clients(product.urls) as made:
        yield made


@orm
def recorded(status: int) -> int:
    ((count,),) = rows(f"SELECT count(*) FROM request_records WHERE status = {status}")
    return int(count)


async def burst(product: Product, clients: list[httpx2.AsyncClient]) -> list[int]:
    """As many requests as there are, at both gateways in turn."""
    found = [await ask(clients[n % 2], product.key, BODY) for n in range(REQUESTS)]
    return sorted(answer.status for answer in found)


async def test_c6_limits_from_draft_to_replay_publication_and_back(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    key = await orm(demo_key)()
    base = f"organizations/{public_id('org', key.organization_id)}/limits/changes"
    assert await burst(product, clients) == [200] * REQUESTS
    await until(lambda: _recorded(200, REQUESTS), 10)

    content = {"limits": [{"of": public_id("proj", key.project_id), "requests_per_day": ALLOWED}]}
    draft = await operate("POST", base, {"content": content, "note": "too fast"})
    (told,) = draft["differences"]
    (field,) = told["fields"]
    assert field == {"field": "requests_per_day", "before": None, "after": ALLOWED}
    found = await operate("POST", f"{base}/1/dry-run", {"hours": 1})
    total = found["total"]
    assert (total["requests"], total["newly"]) == (REQUESTS, REQUESTS - ALLOWED)
    assert [one["tally"]["newly"] for one in found["keys"]] == [REQUESTS - ALLOWED]
    assert found["first"] <= found["last"]
    # Which stores see more: what is written now is what the ledger has of the same requests.
    writes = {one["what"]: one for one in found["writes"]}
    booked = await orm(lambda: rows("SELECT count(*) FROM transfers"))()
    lines = writes["ledger lines"]
    assert (lines["store"], lines["before"]) == ("PostgreSQL", booked[0][0])
    assert lines["after"] == lines["before"] // REQUESTS * ALLOWED
    counters = writes["limit counters"]
    assert counters["after"] == counters["before"] // REQUESTS * ALLOWED + ALLOWED
    assert await burst(product, clients) == [200] * REQUESTS

    # The replay has said what gateways do with the same requests.
    await operate("POST", f"{base}/1/publish", {"revision": 1})
    await until(lambda: _refused(product, clients))
    refused = await orm(lambda: rows("SELECT receipt FROM request_records WHERE status = 429"))()
    assert all(json.loads(bytes(each))["limit"]["scope"] == "project" for (each,) in refused)
    freeing = await operate("POST", base, {"content": {"limits": [{"of": content_of(content)}]}})
    tried = await operate("POST", f"{base}/{freeing['version']}/dry-run", {"hours": 1})
    assert tried["total"]["freed"] > 0 and tried["total"]["newly"] == 0

    back = await operate("POST", f"{base}/rollback", {"version": 1})
    assert (back["state"], back["copy_of"]) == ("published", 1)
    await until(lambda: _all_served(product, clients))


async def test_c6_a_shadow_counts_what_it_would_refuse_and_refuses_nothing(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    key = await orm(demo_key)()
    base = f"organizations/{public_id('org', key.organization_id)}/limits/changes"
    content = {"limits": [{"of": public_id("key", key.id), "requests_per_day": ALLOWED}]}
    await operate("POST", base, {"content": content})
    began = await operate("POST", f"{base}/1/shadow", {"revision": 1})
    assert began["state"] == "canary"

    async def counted() -> bool:
        assert await burst(product, clients) == [200] * REQUESTS
        total = (await operate("GET", f"{base}/shadow"))["shadow"]["total"]
        return bool(total["newly"] > 0 and total["newly"] == total["requests"] - ALLOWED)

    # Requests of the first seconds are left out, as for rules.
    await until(counted, SETTLE.total_seconds() + 20)
    await operate("POST", f"{base}/1/stop")
    assert await operate("GET", f"{base}/shadow") == {"shadow": None}


async def test_c6_prices_are_tried_on_recorded_traffic_first(
    product: Product, clients: list[httpx2.AsyncClient]
) -> None:
    base = "catalog/prices/changes"
    await burst(product, clients)
    await until(lambda: _recorded(200, REQUESTS), 10)
    await operate("POST", base, {"content": {"prices": [{"model": MODEL.name, **DEAR}]}})
    found = await operate("POST", f"{base}/1/dry-run", {"hours": 1})
    total = found["total"]
    assert total["changed"] == total["requests"] == REQUESTS
    assert total["charged_nano"] == total["before_nano"] == total["after_nano"] // 2
    await operate("POST", f"{base}/1/publish", {"revision": 1})

    async def dearer() -> bool:
        answer = await ask(clients[0], product.key, BODY)
        cost = await orm(lambda: rows("SELECT max(cost_nano) FROM request_records"))()
        return answer.whole and bool(cost[0][0] == total["after_nano"] // REQUESTS)

    await until(dearer)
    assert (await operate("POST", f"{base}/rollback", {"version": 1}))["copy_of"] == 1


def content_of(content: dict[str, Any]) -> str:
    """The id of the one thing that a content limits."""
    return str(content["limits"][0]["of"])


async def _recorded(status: int, count: int) -> bool:
    return await recorded(status) >= count


async def _refused(product: Product, clients: list[httpx2.AsyncClient]) -> bool:
    statuses = await burst(product, clients)
    return 429 in statuses and await recorded(429) > 0


async def _all_served(product: Product, clients: list[httpx2.AsyncClient]) -> bool:
    return await burst(product, clients) == [200] * REQUESTS
