"""P15: rerank, score, moderations, tokens and prices of models, by real processes and clients."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from django.conf import settings
from openai import AsyncOpenAI
from openai.types import ModerationImageURLInputParam, ModerationTextInputParam

from controlplane.billing.ledger.selectors import request_charge, request_lines
from controlplane.catalog.pools import PoolDraft, pool_set
from controlplane.catalog.services import ModelDraft, PriceDraft, model_create, price_publish
from controlplane.composed.demo import MODEL
from controlplane.core.audit.entries import OPERATOR
from controlplane.embedded import stack
from controlplane.fleet.services import node_credential_create
from controlplane.kernel.price import Price, TokenCounts, charge_nano
from tests.support.classifier import FINE, FOUL, classifier
from tests.support.encoders import CONTEXT, ENCODER, make_cross_encoder, pair_scores
from tests.support.loopback import HOST
from tests.support.money import rows
from tests.support.orm import orm
from tests.support.product import Child, Plan, Product, running_product, verify_ledger
from tests.support.servers import Servers
from tests.support.waiting import until

POOL = "rerankers"
PRICE = PriceDraft(input_pico=123_457, cached_pico=123_457, output_pico=0)
QUERY, DOCUMENTS = "abc", ["xyz", "abc", "a long text about abc"]

IMAGE: ModerationImageURLInputParam = {"type": "image_url", "image_url": {"url": "data:,"}}


def text_part(text: str) -> ModerationTextInputParam:
    return {"type": "text", "text": text}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cross_encoder(tmp_path_factory.mktemp("cross"))


@pytest.fixture
def product(servers: Servers, folder: Path, tmp_path: Path) -> Iterator[Product]:
    """A gateway, an echo node, and a node with a cross-encoder."""
    with running_product(servers, Plan(started=False)) as product:
        draft = ModelDraft(name=ENCODER, pool=POOL, context_window=CONTEXT, task="embed")
        pool_set(actor=OPERATOR, draft=PoolDraft(name=POOL, task="embed"))
        model = model_create(actor=OPERATOR, draft=draft)
        price_publish(actor=OPERATOR, model=model, draft=PRICE)
        made = node_credential_create(actor=OPERATOR, name="cross", pool=POOL, models=[ENCODER])
        child = stack.embed_node(HOST, product.ports, name="cross", credential=made.secret)
        argv = [*child.argv, "--pool", POOL, "--model", str(folder), "--dtype", "float32"]
        product.nodes.append(Child("cross", argv, child.env, tmp_path / "cross.log"))
        product.mend()
        yield product


def web(product: Product, **headers: str) -> httpx2.AsyncClient:
    headers = {"authorization": f"Bearer {product.key}", **headers}
    return httpx2.AsyncClient(base_url=product.urls[0], headers=headers, timeout=60)


def _charged(request: str) -> tuple[int | None, list[Any]]:
    ((organization,),) = rows("SELECT id FROM organizations")
    of = uuid.UUID(hex=request)
    lines = request_lines(organizations=[organization], request=of)
    return request_charge(organization=organization, request=of), lines


async def test_documents_are_reranked_and_charged_to_the_nano(
    product: Product, folder: Path
) -> None:
    body = {"model": ENCODER, "query": QUERY, "documents": DOCUMENTS}
    async with web(product) as client:
        answer = await client.post("/v1/rerank", json=body)
        assert answer.status_code == 200, answer.text
        scored = await client.post(
            "/v1/score", json={"model": ENCODER, "text_1": QUERY, "text_2": DOCUMENTS}
        )
    price = Price(version=1, input_pico=123_457, cached_pico=123_457, output_pico=0)
    expected = pair_scores(folder, [(QUERY, each) for each in DOCUMENTS])
    found = {each["index"]: each["relevance_score"] for each in answer.json()["results"]}
    assert [found[at] for at in range(len(DOCUMENTS))] == pytest.approx(expected, abs=2e-6)
    assert [each["score"] for each in scored.json()["data"]] == pytest.approx(expected, abs=2e-6)
    for each in (answer, scored):
        request = each.headers["x-request-id"].removeprefix("req_")
        charged, (held, settled) = await orm(_charged)(request)
        counts = TokenCounts(uncached=each.json()["usage"]["total_tokens"], cached=0, output=0)
        assert (settled.uncached, settled.cached, settled.output) == (counts.uncached, 0, 0)
        assert charged == settled.amount == charge_nano(price, counts) <= held.amount
        assert settled.input_pico == PRICE.input_pico
    await verify_ledger()


async def test_texts_are_moderated(product: Product) -> None:
    async with (
        classifier(settings.DATA_DIR),
        AsyncOpenAI(base_url=f"{product.urls[0]}/v1", api_key=product.key) as client,
    ):
        made = await client.moderations.create(
            model="omni-moderation-latest", input=[FINE, f"{FINE} {FOUL}"]
        )
        assert [each.flagged for each in made.results] == [False, True]
        bad = made.results[1]
        assert bad.categories.harassment and not bad.categories.self_harm
        assert bad.category_scores.harassment >= 0.9 and bad.category_scores.sexual == 0
        (parts,) = (
            await client.moderations.create(input=[text_part(FINE), text_part(FOUL)])
        ).results
        assert parts.flagged
        with pytest.raises(openai.BadRequestError) as caught:
            await client.moderations.create(input=[IMAGE])
        assert str(caught.value.param).startswith("input[0]")
        with pytest.raises(openai.NotFoundError) as absent:
            await client.audio.speech.create(model="tts-1", voice="alloy", input="a")
        assert absent.value.code == "unsupported_endpoint"


async def test_tokens_are_counted_as_they_are_charged(product: Product) -> None:
    messages = [{"role": "user", "content": "How many tokens is this?"}]
    count = {"model": MODEL.name, "messages": messages}
    async with web(product) as client:

        async def counted() -> bool:
            # A node may be ready before the gateway has its tokenizer.
            answer = await client.post("/v1/tokenize", json=count)
            return answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE

        await until(counted)
        told = (await client.post("/v1/tokenize", json=count)).json()
        chat = {"model": MODEL.name, "messages": messages, "max_tokens": 1}
        usage = (await client.post("/v1/chat/completions", json=chat)).json()["usage"]
        assert told["count"] == usage["prompt_tokens"] == len(told["tokens"])
        assert told["max_model_len"] == MODEL.context_window
        text = {"model": MODEL.name, "prompt": "Grüße, 世界!", "return_token_strs": True}
        plain = (await client.post("/tokenize", json=text)).json()
        assert len(plain["token_strs"]) == plain["count"]
        ids = {"model": MODEL.name, "tokens": plain["tokens"]}
        assert (await client.post("/detokenize", json=ids)).json() == {"prompt": text["prompt"]}


async def test_models_tell_windows_abilities_and_prices(product: Product) -> None:
    async with web(product) as client:
        answer = (await client.get(f"/v1/models/{ENCODER}")).json()
        assert answer["abilities"] == ["score"] and answer["context_window"] == CONTEXT
        assert answer["pricing"]["input"] == "0.123457"
    async with web(product, **{"anthropic-version": "2023-06-01"}) as client:
        listed = (await client.get("/v1/models")).json()
    assert [each["id"] for each in listed["data"]] == sorted([ENCODER, MODEL.name])
    assert {each["type"] for each in listed["data"]} == {"model"}
    assert (listed["first_id"], listed["last_id"]) == (
        listed["data"][0]["id"], listed["data"][-1]["id"],
    )  # fmt: skip
    assert not listed["has_more"] and listed["data"][0]["created_at"].endswith("Z")
