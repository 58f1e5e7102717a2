"""`/v1/rerank` and `/v1/score` with a real cross-encoder and a real encoder behind the gateway."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.gateway.snapshot import Limits
from controlplane.kernel.price import TokenCounts, charge_nano
from inference.embed.encoder import Encoder
from inference.embed.shape import read_shape
from tests.support.described import answer_shape, check_described
from tests.support.encoders import (
    ANSWER_S_MAX,
    CONTEXT,
    ENCODER,
    Embedding,
    add_encoder,
    encoder_node,
    make_cross_encoder,
    make_encoder,
    make_tokenizer,
    pair_scores,
)
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.ports import KEY, PRICE, make_key

CLOSE = 2e-6
QUERY = "abc"
DOCUMENTS = ["xyz", "abc", "a long text about abc", "hello"]


async def serving(folder: Path) -> AsyncIterator[Embedding]:
    under_test = GatewayUnderTest(limits=LinkLimits())
    add_encoder(under_test)
    async with running_gateway(under_test) as client:
        made = Embedding(under_test, client, folder)
        async with encoder_node(under_test, folder):
            await made.served()
            yield made
            await under_test.at_rest()


@pytest.fixture
async def crossing(tmp_path: Path) -> AsyncIterator[Embedding]:
    async for made in serving(make_cross_encoder(tmp_path)):
        yield made


@pytest.fixture
async def embedding(tmp_path: Path) -> AsyncIterator[Embedding]:
    async for made in serving(make_encoder(tmp_path)):
        yield made


async def post(serving: Embedding, path: str, **body: Any) -> httpx2.Response:
    whole = {"model": ENCODER, **body}
    return await serving.client.post(path, json=whole, timeout=ANSWER_S_MAX)


async def rerank(serving: Embedding, **changes: Any) -> httpx2.Response:
    return await post(serving, "/v1/rerank", **{"query": QUERY, "documents": DOCUMENTS, **changes})


def told(answer: httpx2.Response, path: str) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    check_described(body, answer_shape(path))
    assert body["model"] == ENCODER
    return body


async def test_documents_come_back_best_first(crossing: Embedding) -> None:
    body = told(await rerank(crossing), "/v1/rerank")
    expected = pair_scores(crossing.model, [(QUERY, each) for each in DOCUMENTS])
    order = sorted(range(len(expected)), key=lambda at: -expected[at])
    assert [each["index"] for each in body["results"]] == order
    for each in body["results"]:
        assert each["relevance_score"] == pytest.approx(expected[each["index"]], abs=CLOSE)
        assert each["document"] == {"text": DOCUMENTS[each["index"]]}
    tokens = sum(len(make_tokenizer().encode(QUERY, each).ids) for each in DOCUMENTS)
    assert body["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert body["id"].startswith("rerank-")


async def test_the_best_few_without_texts(crossing: Embedding) -> None:
    whole = told(await rerank(crossing), "/v1/rerank")["results"]
    given = [{"text": each, "title": "of its own"} for each in DOCUMENTS]
    few = told(
        await rerank(crossing, documents=given, top_n=2, return_documents=False), "/v1/rerank"
    )
    assert few["results"] == [
        {name: each[name] for name in ("index", "relevance_score")} for each in whole[:2]
    ]


@pytest.mark.parametrize("path", ["/rerank", "/v2/rerank", "/v1/rerank"])
async def test_every_path_of_reranking(crossing: Embedding, path: str) -> None:
    answer = await post(crossing, path, query=QUERY, documents=["a"])
    assert len(answer.json()["results"]) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", {"query": QUERY, "documents": ["a"]}),
        ("/v1/score", {"text_1": "a", "text_2": "b"}),
    ],
)
async def test_end_users_are_named_and_limited(
    crossing: Embedding, path: str, body: dict[str, Any]
) -> None:
    limits = Limits(per_user=Limits(requests_per_min=1))
    crossing.under_test.keys.keys[KEY] = make_key(limits=limits)
    for user in ("ann", "bob"):
        answer = await post(crossing, path, **body, user=user)
        assert answer.status_code == 200, answer.text
        assert "x-sluice-ignored" not in answer.headers
    refused = await post(crossing, path, **body, user="ann")
    assert refused.status_code == 429
    assert "this end user" in refused.json()["error"]["message"]
    await crossing.under_test.at_rest()
    records = crossing.under_test.recorder.records
    assert [each.user for each in records] == ["ann", "bob", "ann"]
    wrong = await post(crossing, path, **body, user=1)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "user")


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
async def test_scores_keep_their_order(crossing: Embedding, path: str) -> None:
    one = told(await post(crossing, path, text_1="ab", text_2=["c", "d e", "ab"]), "/v1/score")
    expected = pair_scores(crossing.model, [("ab", "c"), ("ab", "d e"), ("ab", "ab")])
    assert one["object"] == "list"
    assert [each["index"] for each in one["data"]] == [0, 1, 2]
    assert [each["score"] for each in one["data"]] == pytest.approx(expected, abs=CLOSE)
    each = told(await post(crossing, path, text_1=["a", "b"], text_2=["x", "y"]), "/v1/score")
    expected = pair_scores(crossing.model, [("a", "x"), ("b", "y")])
    assert [one["score"] for one in each["data"]] == pytest.approx(expected, abs=CLOSE)
    bare = told(await post(crossing, path, text_1="a", text_2="x"), "/v1/score")
    assert bare["data"][0]["score"] == pytest.approx(expected[0], abs=CLOSE)


def cosines(folder: Path, query: str, documents: list[str]) -> list[float]:
    encoder = Encoder(folder, read_shape(folder), dtype="float32", device="cpu")
    rows = encoder.encode([make_tokenizer().encode(text).ids for text in (query, *documents)])
    return [float(rows[0] @ row) for row in rows[1:]]


async def test_an_encoder_without_a_head_answers_with_cosines(embedding: Embedding) -> None:
    body = told(await rerank(embedding), "/v1/rerank")
    expected = cosines(embedding.model, QUERY, DOCUMENTS)
    scores = {each["index"]: each["relevance_score"] for each in body["results"]}
    assert [scores[at] for at in range(len(DOCUMENTS))] == pytest.approx(expected, abs=CLOSE)
    assert body["results"][0]["index"] == 1 and scores[1] == pytest.approx(1.0, abs=CLOSE)
    tokens = sum(len(make_tokenizer().encode(text).ids) for text in (QUERY, *DOCUMENTS))
    assert body["usage"]["total_tokens"] == tokens
    scored = told(await post(embedding, "/v1/score", text_1=QUERY, text_2=DOCUMENTS), "/v1/score")
    assert [each["score"] for each in scored["data"]] == pytest.approx(expected, abs=CLOSE)


async def test_many_documents_keep_their_scores(embedding: Embedding) -> None:
    documents = [chr(ord("a") + at % 26) * (1 + at % 30) for at in range(500)]
    body = told(await rerank(embedding, documents=documents), "/v1/rerank")
    scores = {each["index"]: each["relevance_score"] for each in body["results"]}
    expected = cosines(embedding.model, QUERY, documents)
    assert [scores[at] for at in range(500)] == pytest.approx(expected, abs=CLOSE)
    assert all(
        -1 - CLOSE <= score <= 1 + CLOSE and math.isfinite(score) for score in scores.values()
    )


async def test_tokens_of_pairs_are_held_and_charged(crossing: Embedding) -> None:
    body = told(await rerank(crossing, query="q" * 20), "/v1/rerank")
    (settled,) = crossing.under_test.ledger.settled.values()
    tokens = body["usage"]["total_tokens"]
    assert settled.counts == TokenCounts(uncached=tokens, cached=0, output=0)
    assert 0 < settled.amount_nano == charge_nano(PRICE, settled.counts) <= settled.held_nano
    (record,) = crossing.under_test.recorder.records
    assert (record.operation, record.status, record.prompt_tokens) == ("rerank", 200, tokens)
    taken = crossing.under_test.limiter.taken[0]
    assert crossing.under_test.limiter.corrections == [tokens - taken]


async def test_pairs_are_counted_exactly_where_the_bound_does_not_fit(crossing: Embedding) -> None:
    tokens = sum(len(make_tokenizer().encode(QUERY, each).ids) for each in DOCUMENTS)
    exact = charge_nano(PRICE, TokenCounts(uncached=tokens, cached=0, output=0))
    crossing.under_test.ledger.room_nano = exact
    assert (await rerank(crossing)).status_code == 200
    answer = await rerank(crossing, query=QUERY + "d")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "insufficient_quota")


LONG = "a" * (CONTEXT - 6)
REFUSALS: list[tuple[str, dict[str, Any], str | None, str]] = [
    ("/v1/rerank", {"query": ""}, None, "query"),
    ("/v1/rerank", {"documents": []}, None, "documents"),
    ("/v1/rerank", {"documents": ["a", ""]}, None, "documents[1]"),
    (
        "/v1/rerank",
        {"documents": [{"title": "a"}]},
        "missing_required_parameter",
        "documents[0].text",
    ),
    ("/v1/rerank", {"documents": ["a"] * 2048}, None, "documents"),
    ("/v1/rerank", {"top_n": 0}, None, "top_n"),
    ("/v1/rerank", {"documents": ["a", LONG + "a"]}, "context_length_exceeded", "documents[1]"),
    ("/v1/rerank", {"query": "a" * 100}, "context_length_exceeded", "query"),
    ("/v1/rerank", {"model": MODEL}, "model_task_mismatch", "model"),
    ("/v1/rerank", {"model": "none"}, "model_not_found", "model"),
    ("/v1/score", {"text_1": ["a", "b"], "text_2": ["c"]}, None, "text_1"),
    ("/v1/score", {"text_1": "a", "text_2": ["c", ""]}, None, "text_2[1]"),
    ("/v1/score", {"text_1": "", "text_2": "c"}, None, "text_1"),
    ("/v1/score", {"text_1": "a"}, "missing_required_parameter", "text_2"),
]


@pytest.mark.parametrize(("path", "changes", "code", "param"), REFUSALS)
async def test_refusals_name_the_field(
    crossing: Embedding, path: str, changes: dict[str, Any], code: str | None, param: str
) -> None:
    usual = {"query": QUERY, "documents": DOCUMENTS} if path == "/v1/rerank" else {}
    answer = await post(crossing, path, **{**usual, **changes})
    assert answer.status_code == (404 if code == "model_not_found" else 400)
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (code, param), error
    assert all(not each.amount_nano for each in crossing.under_test.ledger.settled.values())


async def test_what_just_fits_is_scored(crossing: Embedding) -> None:
    answer = await rerank(crossing, documents=[LONG])
    assert told(answer, "/v1/rerank")["usage"]["total_tokens"] == CONTEXT


async def test_a_cross_encoder_does_not_embed(crossing: Embedding) -> None:
    answer = await crossing.embed("a")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "model_task_mismatch")
    assert "/v1/rerank" in error["message"]
    generated = await post(crossing, "/v1/score", model=MODEL, text_1="a", text_2="b")
    assert "scores" in generated.json()["error"]["message"]


async def test_models_tell_who_scores(crossing: Embedding) -> None:
    listed = (await crossing.client.get("/v1/models")).json()["data"]
    abilities = {each["id"]: each["abilities"] for each in listed}
    assert abilities == {ENCODER: ["score"], MODEL: []}
