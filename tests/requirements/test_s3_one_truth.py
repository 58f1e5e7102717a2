"""S1, S2, S3, S6, C4: real traffic has one set of figures, whoever is asked: clients, ledger,
Overview, Requests and its CSV, API, usage export, and `/metrics` of all gateways together.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from django.conf import settings
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from controlplane.billing.exports.kinds import pages_of, scope_of
from controlplane.billing.exports.models import ExportKind
from controlplane.billing.exports.writer import lines_of
from controlplane.billing.ledger.services import seal_ledger
from tests.product.books import CHARGES
from tests.product.traffic import Answer, ask, make_body, open_client, word_token
from tests.support.exports import days_spec, rows_of
from tests.support.money import rows
from tests.support.people import demo_admin
from tests.support.product import Plan, Product, running_product
from tests.support.servers import Servers
from tests.support.waiting import wait_for

ROUNDS = 6
# Several whole blocks, so that every prompt but the first finds them cached.
PROMPT_TOKENS = 200
METRICS = (
    "sluice_requests_total",
    "sluice_uncached_tokens_total",
    "sluice_cached_tokens_total",
    "sluice_output_tokens_total",
    "sluice_charged_nano_usd_total",
)
LINES = ("uncached_input_tokens", "cached_input_tokens", "output_tokens", "amount_nano_usd")


@dataclass(frozen=True)
class Figures:
    """What everyone must agree on; of the prompts' tokens `cached` came from the cache."""

    requests: int
    prompt: int
    cached: int
    output: int
    nano: int


@pytest.fixture
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(gateways=2, speculates=True)) as product:
        yield product


async def _traffic(product: Product) -> list[Answer]:
    """One after the other, so that each finds what the one before left in the cache."""
    answers = []
    for number in range(ROUNDS):
        body = make_body(tokens=3 + number, stream=number % 3 != 0)
        body["prompt"] = [word_token()] * PROMPT_TOKENS
        async with open_client(product.urls[number % 2]) as client:
            answers.append(await ask(client, product.key, body))
    return answers


def _told(answers: Iterable[Answer]) -> tuple[int, ...]:
    """Requests, prompt, cached and output tokens as the clients were told."""
    usages = [answer.usage or {} for answer in answers]
    return (
        len(usages),
        sum(usage["prompt_tokens"] for usage in usages),
        sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages),
        sum(usage["completion_tokens"] for usage in usages),
    )


def _on_the_ledger() -> Figures:
    (found,) = rows(
        "SELECT count(*), sum(uncached + cached)::int, sum(cached)::int, sum(output)::int,"
        f" sum(amount)::bigint FROM transfers WHERE kind IN {CHARGES}"
    )
    return Figures(*found)


def _scraped(product: Product) -> Figures:
    """Counters of every gateway, added up as Prometheus would."""
    sums = dict.fromkeys(METRICS, 0)
    for url in product.urls:
        token = {"authorization": f"Bearer {settings.METRICS_TOKEN}"}
        answer = httpx2.get(f"{url}/metrics", headers=token, trust_env=False)
        assert answer.status_code == 200
        for family in text_string_to_metric_families(answer.text):
            for sample in family.samples:
                if sample.name in sums:
                    sums[sample.name] += int(sample.value)
    requests, uncached, cached, output, nano = (sums[name] for name in METRICS)
    return Figures(requests, uncached + cached, cached, output, nano)


def _listed(client: Client) -> Figures:
    """The list of requests as CSV."""
    answer = client.get("/requests.csv?range=1h")
    assert answer.status_code == 200, answer.content
    found = rows_of(answer.content)
    columns = ("prompt_tokens", "cached_tokens", "output_tokens", "cost_nano_usd")
    return Figures(len(found), *(sum(int(row[name]) for row in found) for name in columns))


def _titles(client: Client) -> dict[str, str]:
    """Exact values behind the Overview's figures, by key."""
    page = client.get("/?range=1h").content.decode()
    return dict(re.findall(r'data-cell="([^"]+)" title="([^"]+)"', page))


def _usage(client: Client) -> Figures:
    """Usage and costs in the API's shapes."""
    start = int((datetime.now(UTC) - timedelta(days=1)).timestamp())

    def results(path: str) -> list[dict[str, Any]]:
        answer = client.get(f"/v1/organization/{path}", {"start_time": start})
        assert answer.status_code == 200, answer.content
        return [one for bucket in answer.json()["data"] for one in bucket["results"]]

    used = results("usage/completions")
    columns = ("num_model_requests", "input_tokens", "input_cached_tokens", "output_tokens")
    requests, prompt, cached, output = (sum(one[name] for one in used) for name in columns)
    nano = sum(one["amount"]["nano_usd"] for one in results("costs"))
    return Figures(requests, prompt, cached, output, nano)


def _exported(organization: uuid.UUID) -> Figures:
    """The detail CSV as it will be once the hour is over: until then an export leaves it out."""
    today = datetime.now(UTC).date()
    span = today - timedelta(days=1), today + timedelta(days=2)
    spec = days_spec(organization, ExportKind.DETAIL, *span)
    found = rows_of("".join(lines_of(pages_of(spec, scope_of(spec, spec.end)))).encode())
    uncached, cached, output, nano = (sum(int(row[name]) for row in found) for name in LINES)
    requests = {row["request_id"] for row in found}
    return Figures(len(requests), uncached + cached, cached, output, nano)


def test_everyone_who_is_asked_says_the_same(product: Product) -> None:
    answers = asyncio.run(_traffic(product))
    assert all(answer.whole for answer in answers)
    truth = _on_the_ledger()
    assert astuple(truth)[:4] == _told(answers)
    assert 0 < truth.cached < truth.prompt and truth.nano > 0
    client = demo_admin()
    wait_for(lambda: _listed(client) == truth, "the same rows of requests")
    assert _scraped(product) == truth

    def overview() -> tuple[str | None, ...]:
        titles = _titles(client)
        return titles.get("requests"), titles.get("cache"), titles.get("spend")

    nano = f"${truth.nano // 10**9}.{truth.nano % 10**9:09d}"
    shown = (f"{truth.requests:,}", f"{truth.cached:,} tokens", nano)
    wait_for(lambda: overview() == shown, "the same figures on the Overview")
    seal_ledger(datetime.now(UTC))
    assert _usage(client) == truth
    (organization,) = rows("SELECT DISTINCT organization FROM transfers")[0]
    assert _exported(organization) == truth
