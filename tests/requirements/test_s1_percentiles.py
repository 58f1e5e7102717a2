"""S1, what is there of it: percentiles of stages and of the client's times, by model and tenant."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from django.test import Client

from controlplane.blueprint.demo import MODEL
from controlplane.kernel.spans import STAGES
from tests.product.traffic import Answer, ask, make_body, open_client
from tests.support.people import demo_admin
from tests.support.product import Plan, Product, running_product, wait_for
from tests.support.servers import Servers

REQUESTS = 12
TOKENS = 5
PERCENTILES = ("p50", "p95", "p99")


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(tokens_per_s=500.0)) as product:
        yield product


async def _ask(product: Product) -> list[Answer]:
    async with open_client(product.urls[0]) as client:
        body = make_body(tokens=TOKENS)
        return await asyncio.gather(*(ask(client, product.key, body) for _ in range(REQUESTS)))


def _cells(client: Client, query: str) -> dict[str, tuple[str, str]]:
    """Every figure of the Overview: its exact value and its text."""
    page = client.get(f"/?range=15m&{query}").content.decode()
    found = re.findall(r'data-cell="([^"]+)"(?: title="([^"]*)")?[^>]*>([^<]*)', page)
    return {name: (title, text) for name, title, text in found}


def test_every_stage_and_the_clients_times_have_three_percentiles(product: Product) -> None:
    answers = asyncio.run(_ask(product))
    assert all(answer.whole for answer in answers)
    client, everything = demo_admin(), f"{REQUESTS}"
    wait_for(lambda: _cells(client, "")["requests"][0] == everything, "figures")
    for query, count in ((f"model={MODEL.name}", REQUESTS), ("model=none", 0)):
        cells = _cells(client, query)
        assert cells["requests"][0] == str(count)
        for stage, _, _ in STAGES:
            assert cells[f"{stage}.n"][0] == str(count)
            told = [cells[f"{stage}.{percent}"][1] != "–" for percent in PERCENTILES]
            assert told == [count > 0] * 3
        assert [cells[f"ttft.{percent}"][1] != "–" for percent in PERCENTILES] == [count > 0] * 3
    # Queue, model, network and the client's line are told apart for each request.
    page = client.get(f"/requests/{answers[0].request}").content.decode()
    for words in ("Network to the node and back", "Node: queue", "Node: prefill", "Node: decode"):
        assert re.search(rf"<dt>{words}</dt><dd>[\d.,]+ (ms|s)", page), words
    assert re.search(r"<dt>Client&#x27;s line, round trip</dt><dd>[\d.]+ ms", page)
    # Each connection's own round trip, which is no time of the request, beside the total.
    page = client.get("/latency?range=15m").content.decode()
    line = page[page.index('data-cell="client_rtt.p50"') :]
    assert re.match(r"[^>]*>[\d.]+<", line)
    assert re.search(rf'data-label="n">{REQUESTS}<', line)
