"""S3: live plots, queue depth among them; for every request a waterfall, and why it was refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from django.test import Client

from controlplane.core.audit.entries import OPERATOR
from controlplane.kernel.spans import SPANS
from controlplane.quotas.services import rate_limit_set
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.people import demo_admin
from tests.support.product import Plan, Product, demo_key, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

REQUESTS = 5
TOKENS = 60
LAYERS_MIN = 14
DAILY = 2


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    # One job at a time, so all others wait in the gateway; each takes longer than two samples are
    # apart, so that one sees all others wait, however slowly they come in.
    with running_product(servers, Plan(tokens_per_s=40.0, credits=1)) as product:
        yield product


async def _ask(product: Product, requests: int, tokens: int = TOKENS) -> list[Answer]:
    async with open_client(product.urls[0]) as client:
        body = make_body(tokens=tokens)
        return await asyncio.gather(*(ask(client, product.key, body) for _ in range(requests)))


def _figures(client: Client) -> dict[str, Any]:
    page = client.get("/?range=15m").content.decode()
    (found,) = re.findall(r'<script id="figures" type="application/json">(.*?)</script>', page)
    figures: dict[str, Any] = json.loads(found)
    return figures


def test_a_burst_is_seen_in_the_queue_chart_and_each_request_in_its_waterfall(
    product: Product,
) -> None:
    answers = asyncio.run(_ask(product, REQUESTS))
    assert all(answer.whole for answer in answers)
    client = demo_admin()

    def most_waiting() -> int:
        lines = {one["name"]: one["y"] for one in _figures(client)["queue"]["data"]}
        return max((value for value in lines["maximum"] if value is not None), default=0)

    wait_for(lambda: most_waiting() >= REQUESTS - 1, "queue depth")
    figures = _figures(client)
    expected = {
        "traffic",
        "total",
        "stages",
        "ttft",
        "overhead",
        "throughput",
        "queue",
        "priorities",
        "oldest",
        "cache",
    }
    assert set(figures) == expected
    of = {
        trace["name"]: max((y for y in trace["y"] if y is not None), default=None)
        for name in ("priorities", "oldest")
        for trace in figures[name]["data"]
    }
    assert of.keys() == {"high", "normal", "low", "longest wait"}
    assert (of["high"], of["low"]) == (0, 0) and of["normal"] is not None
    assert all(any(trace["y"]) for name in ("stages", "ttft") for trace in figures[name]["data"])
    # Rows and samples are written apart, each in its own time.
    paths = [f"/requests/{answer.request}" for answer in answers]
    wait_for(lambda: all(client.get(path).status_code == HTTPStatus.OK for path in paths), "rows")
    for path in paths:
        page = client.get(path).content.decode()
        table = page[page.index("waterfall-title") :]
        rows = re.findall(r'<tr class="stage-\d (stage|layer)\s*(absent)?"', table)
        # The last is the line to the client, which is in no stage.
        assert len(rows) == len(SPANS) + 1
        assert rows.count(("layer", "")) >= LAYERS_MIN
    _the_limit_that_refused_is_told(product, client)


def _the_limit_that_refused_is_told(product: Product, client: Client) -> None:
    """Of one more request than the key has in a day."""
    version, key = product.readiness()["configuration_version"], demo_key()
    rate_limit_set(actor=OPERATOR, subject=key, requests_per_day=DAILY)
    wait_for(lambda: product.readiness()["configuration_version"] > version, "the limit")
    answers = asyncio.run(_ask(product, DAILY + 1, tokens=1))
    assert sorted(answer.status for answer in answers) == [HTTPStatus.OK] * DAILY + [429]
    (refused,) = (answer.request for answer in answers if answer.status == 429)
    page = f"/requests/{refused}"
    wait_for(lambda: client.get(page).status_code == HTTPStatus.OK, "the refused one's row")
    for address in (page, "/requests?status=429"):
        text = client.get(address).content.decode()
        assert f"{DAILY} requests a day" in text
        assert f'href="/limits#limit-{key.id.hex}"' in text
    assert "was valid, but the request was refused." in client.get(page).content.decode()
