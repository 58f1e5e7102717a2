"""S3: live plots, queue depth among them; a waterfall for every request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
from django.test import Client

from controlplane.kernel.spans import SPANS
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.people import demo_admin
from tests.support.product import Plan, Product, running_product, wait_for
from tests.support.servers import Servers

REQUESTS = 5
TOKENS = 60
LAYERS_MIN = 14


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    # One job at a time, so all others wait in the gateway; each takes longer than two samples are
    # apart, so that one sees all others wait, however slowly they come in.
    with running_product(servers, Plan(tokens_per_s=40.0, credits=1)) as product:
        yield product


async def _ask(product: Product) -> list[Answer]:
    async with open_client(product.urls[0]) as client:
        body = make_body(tokens=TOKENS)
        return await asyncio.gather(*(ask(client, product.key, body) for _ in range(REQUESTS)))


def _figures(client: Client) -> dict[str, Any]:
    page = client.get("/?range=15m").content.decode()
    (found,) = re.findall(r'<script id="figures" type="application/json">(.*?)</script>', page)
    figures: dict[str, Any] = json.loads(found)
    return figures


def test_a_burst_is_seen_in_the_queue_chart_and_each_request_in_its_waterfall(
    product: Product,
) -> None:
    answers = asyncio.run(_ask(product))
    assert all(answer.whole for answer in answers)
    client = demo_admin()

    def most_waiting() -> int:
        lines = {one["name"]: one["y"] for one in _figures(client)["queue"]["data"]}
        return max((value for value in lines["most at once"] if value is not None), default=0)

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
        rows = re.findall(r'<tr class="stage-\d (stage|layer)( absent)?"', table)
        assert len(rows) == len(SPANS)
        assert rows.count(("layer", "")) >= LAYERS_MIN
