"""S1: percentiles of stages and of the client's times, by model, route, tenant and prompt length;
they are those of the requests that were made.
"""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import Iterator
from math import ceil

import pytest
from django.test import Client
from pytest import approx

from controlplane.composed.demo import MODEL
from controlplane.kernel.spans import STAGES
from tests.product.traffic import (
    PROMPT_TOKENS,
    Answer,
    ask,
    make_body,
    open_client,
    word_token,
)
from tests.support.money import rows
from tests.support.people import demo_admin, make_cast, signed_in
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

REQUESTS = 12
TOKENS = 5
PERCENTILES = ("p50", "p95", "p99")
LONG_PROMPT = 600
# What the histograms' buckets may be off by.
HISTOGRAM_ERROR = 0.022
RECORDS = "SELECT request, total_us FROM request_records"


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(tokens_per_s=500.0)) as product:
        yield product


def _cells(client: Client, query: str) -> dict[str, tuple[str, str]]:
    """Every figure of the Overview: its exact value and its text."""
    page = client.get(f"/?range=15m&{query}").content.decode()
    found = re.findall(r'data-cell="([^"]+)"(?: title="([^"]*)")?[^>]*>([^<]*)', page)
    return {name: (title, text) for name, title, text in found}


def test_percentiles_are_those_of_the_traffic_everywhere(product: Product) -> None:
    short, long = asyncio.run(_ask_unlike(product))
    assert all(answer.whole for answer in (*short, *long))
    client, count = demo_admin(), len(short) + len(long)
    wait_for(lambda: len(rows(RECORDS)) == count, "records")
    wait_for(lambda: _cells(client, "")["requests"][0] == str(count), "figures")
    _check_every_stage_and_the_clients_times(client, count)
    _check_one_request_and_the_line_to_the_client(client, short[0], count)
    totals = {request.hex: total for request, total in rows(RECORDS)}
    _check_the_total_of_all(client, totals)
    # Groups are written less often, and whatever is left at the end.
    for child in (*product.nodes, *product.gateways):
        child.stop()
    _check_groups(client, totals, {"\u2264 256 tokens": short, "\u2264 1k tokens": long})
    # Another tenant has none of it.
    assert _cells(signed_in(make_cast().charlie), "")["requests"][0] == "0"


def _check_every_stage_and_the_clients_times(client: Client, everything: int) -> None:
    for query, count in ((f"model={MODEL.name}", everything), ("model=none", 0)):
        cells = _cells(client, query)
        assert cells["requests"][0] == str(count)
        for stage, _, _ in STAGES:
            assert cells[f"{stage}.n"][0] == str(count)
            told = [cells[f"{stage}.{percent}"][1] != "–" for percent in PERCENTILES]
            assert told == [count > 0] * 3
        assert [cells[f"ttft.{percent}"][1] != "–" for percent in PERCENTILES] == [count > 0] * 3


def _check_one_request_and_the_line_to_the_client(
    client: Client, answer: Answer, count: int
) -> None:
    # Queue, model, network and the client's line are told apart for each request.
    page = client.get(f"/requests/{answer.request}").content.decode()
    for words in ("Network to the node and back", "Node: queue", "Node: prefill", "Node: decode"):
        assert re.search(rf"<dt>{words}</dt>\s*<dd>[\d.,]+ (ms|s)", page), words
    assert re.search(r"<dt>Client network, round trip</dt>\s*<dd>[\d.]+ ms", page)
    # Each connection's own round trip, which is no time of the request, beside the total.
    page = client.get("/latency?range=15m").content.decode()
    line = page[page.index('data-cell="client_rtt.p50"') :]
    assert re.match(r"[^>]*>[\d.]+<", line)
    assert re.search(rf'data-label="n">{count}<', line)


def _nearest(values: list[int], percent: int) -> int:
    """The exact percentile, by nearest rank."""
    return sorted(values)[ceil(percent / 100 * len(values)) - 1]


def _told(page: str, measure: str) -> list[int]:
    """Microseconds behind a measure's three percentiles, as the links to examples have them."""
    found = {}
    linked = r'href="/requests/exemplar([^"]*)"[^>]*><span data-cell="([^"]+)"'
    for link, cell in re.findall(linked, page):
        if (value := re.search(r"value=(\d+)", link)) is not None:
            found[cell] = int(value[1])
    return [found[f"{measure}.{percent}"] for percent in PERCENTILES]


def _groups(client: Client, by: str) -> dict[str, tuple[int, list[float]]]:
    """By the page's own groups: requests, and the percentiles of the total in milliseconds."""
    text = client.get(f"/latency/by.csv?range=15m&by={by}").content.decode("utf-8-sig")
    _, *rows = csv.reader(io.StringIO(text))
    return {name: (int(count), [float(one) for one in more[:3]]) for name, count, *more in rows}


def _check_the_total_of_all(client: Client, totals: dict[str, int]) -> None:
    told = _told(client.get("/?range=15m").content.decode(), "total")
    for percent, value in zip((50, 95, 99), told, strict=True):
        assert value == approx(_nearest([*totals.values()], percent), rel=HISTOGRAM_ERROR)


def _check_groups(client: Client, totals: dict[str, int], parts: dict[str, list[Answer]]) -> None:
    groups = _groups(client, "prompt_bucket")
    assert {name: count for name, (count, _) in groups.items()} == {
        name: len(answers) for name, answers in parts.items()
    }
    for name, answers in parts.items():
        values = [totals[answer.request] for answer in answers]
        for percent, ms in zip((50, 95, 99), groups[name][1], strict=True):
            assert ms * 1_000 == approx(_nearest(values, percent), rel=HISTOGRAM_ERROR, abs=100)
    assert {name: count for name, (count, _) in _groups(client, "route").items()} == {
        "direct": len(totals)
    }


async def _ask_unlike(product: Product) -> tuple[list[Answer], list[Answer]]:
    """Short prompts with short answers, and long ones with answers ten times as long."""
    async with open_client(product.urls[0]) as client:

        async def some(prompt: int, tokens: int) -> list[Answer]:
            body = make_body(tokens=tokens) | {"prompt": [word_token()] * prompt}
            asking = (ask(client, product.key, body) for _ in range(REQUESTS))
            return await asyncio.gather(*asking)

        return await some(PROMPT_TOKENS, TOKENS), await some(LONG_PROMPT, 10 * TOKENS)
