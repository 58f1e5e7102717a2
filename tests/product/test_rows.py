"""Requirements that other tests hold of a gateway in their own process, held by processes: a
gateway, a node with the built-in engine, PostgreSQL and Redis.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from controlplane.composed.demo import MODEL
from inference.contract.roofline import RUNS_ON
from tests.product.books import bills, open_holds
from tests.product.traffic import Answer, ask, open_client
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import Plan, Product, running_product
from tests.support.rules import make_models, publish
from tests.support.servers import Servers
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
LONG = "The handbook says that doors open at nine. " * 40
TOO_LONG = "word " * 6_000
TOKENS = 8


@pytest.fixture(scope="module")
def product(servers: Servers) -> Iterator[Product]:
    with running_product(servers, Plan(speculates=True)) as product:
        yield product


@pytest.fixture
async def client(product: Product) -> AsyncIterator[httpx2.AsyncClient]:
    made = open_client(product.urls[0])
    yield made
    await made.aclose()


async def chat(
    client: httpx2.AsyncClient, product: Product, text: str, *, stream: bool = False, **more: Any
) -> Answer:
    said = [{"role": "user", "content": text}]
    body = {"model": MODEL.name, "messages": said, "max_tokens": TOKENS, "stream": stream, **more}
    return await ask(client, product.key, body, path=CHAT)


def deltas(answer: Answer) -> list[str]:
    choices = [choice for event in answer.events for choice in event.get("choices", ())]
    return [text for one in choices if (text := one["delta"].get("content"))]


async def test_p2_a_stream_comes_in_pieces_and_says_what_a_whole_answer_says(
    product: Product, client: httpx2.AsyncClient
) -> None:
    fixed: dict[str, Any] = {"temperature": 0, "seed": 1}
    streamed = await chat(client, product, "What is a hold?", stream=True, **fixed)
    whole = await chat(client, product, "What is a hold?", **fixed)
    assert streamed.whole and whole.whole
    pieces = deltas(streamed)
    assert len(pieces) > 1
    (choice,) = whole.events[0]["choices"]
    assert "".join(pieces) == choice["message"]["content"]


async def test_p5_what_is_too_long_reaches_no_node_and_costs_nothing(
    product: Product, client: httpx2.AsyncClient
) -> None:
    refused = await chat(client, product, TOO_LONG)
    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
    assert product.under_way() == 0 and open_holds() == 0
    assert refused.request not in bills()


async def test_p9_a_rule_falls_back_to_the_model_that_serves(
    product: Product, client: httpx2.AsyncClient
) -> None:
    steps = [{"targets": [{"model": name}], "queue_s": 0} for name in ("absent", MODEL.name)]
    await orm(make_models)("absent")
    await orm(publish)(
        {"name": "kind", "match": {"aliases": ["kind"], "tasks": ["generate"]}, "steps": steps}
    )

    async def served() -> bool:
        answer = await chat(client, product, "Hello", model="kind")
        return answer.whole and answer.events[0]["model"] == MODEL.name

    await until(served)


async def test_i3_a_prefix_is_read_from_the_cache_and_s2_counts_it(
    product: Product, client: httpx2.AsyncClient
) -> None:
    first = await chat(client, product, f"{LONG}When?")
    again = await chat(client, product, f"{LONG}Why?")
    assert first.usage is not None and again.usage is not None
    cached = again.usage["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < again.usage["prompt_tokens"]

    def recorded() -> list[tuple[int]]:
        query = "SELECT cached_tokens FROM request_records WHERE request = %s"
        return rows(query, uuid.UUID(hex=again.request))

    await until(lambda: recorded() == [(cached,)])


def test_i7_a_node_says_what_it_runs_on(product: Product) -> None:
    assert RUNS_ON in product.nodes[0].log
