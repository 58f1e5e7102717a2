"""`/v1/embeddings` over a real socket with a real encoder: shapes, refusals, money, record."""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from controlplane.gateway.nodes.limits import LinkLimits
from controlplane.kernel.price import TokenCounts, charge_nano
from controlplane.kernel.spans import ABSENT, SPANS, STAGES, unpack_spans
from inference.embed.encoder import Encoder
from inference.embed.shape import read_shape
from tests.support.described import answer_shape, check_described
from tests.support.encoders import (
    CONTEXT,
    ENCODER,
    HIDDEN,
    PIECES,
    SHORT,
    Embedding,
    add_encoder,
    encoder_node,
    make_encoder,
    make_tokenizer,
)
from tests.support.fleet import MODEL
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.ports import PRICE
from tests.support.waiting import until

TEXTS = ["abc", "z", "hello world", "x y z"]
CLOSE = 2e-6
INPUTS_MAX = 2048


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
async def embedding(folder: Path) -> AsyncIterator[Embedding]:
    under_test = GatewayUnderTest(limits=LinkLimits())
    add_encoder(under_test)
    async with running_gateway(under_test) as client:
        made = Embedding(under_test, client, folder)
        async with encoder_node(under_test, folder, step_tokens=1024):
            await made.served()
            yield made
            await under_test.at_rest()


def expected(folder: Path, texts: list[str]) -> list[list[float]]:
    encoder = Encoder(folder, read_shape(folder), dtype="float32", device="cpu")
    inputs = [make_tokenizer().encode(text).ids for text in texts]
    rows: list[list[float]] = encoder.encode(inputs).tolist()
    return rows


def vectors(answer: httpx2.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    body = answer.json()
    check_described(body, answer_shape("/v1/embeddings"))
    assert body["object"] == "list" and body["model"] == ENCODER
    assert [each["index"] for each in body["data"]] == list(range(len(body["data"])))
    assert {each["object"] for each in body["data"]} == {"embedding"}
    return [each["embedding"] for each in body["data"]]


def floats(text: str) -> list[float]:
    return array("f", base64.b64decode(text)).tolist()


async def test_texts_become_the_encoders_vectors(embedding: Embedding) -> None:
    answer = await embedding.embed(TEXTS)
    for made, wanted in zip(vectors(answer), expected(embedding.model, TEXTS), strict=True):
        assert made == pytest.approx(wanted, abs=CLOSE)
        assert math.fsum(value * value for value in made) == pytest.approx(1.0, abs=1e-5)
    tokens = sum(len(make_tokenizer().encode(text).ids) for text in TEXTS)
    assert answer.json()["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


async def test_every_shape_of_input_is_the_same_vector(embedding: Embedding) -> None:
    ids = make_tokenizer().encode("abc").ids
    shapes: list[Any] = ["abc", ["abc"], ids, [ids]]
    first, *others = [vectors(await embedding.embed(shape)) for shape in shapes]
    assert len(first) == 1 and others == [first] * 3


async def test_base64_holds_the_same_floats(embedding: Embedding) -> None:
    plain = vectors(await embedding.embed(TEXTS, encoding_format="float"))
    packed = vectors(await embedding.embed(TEXTS, encoding_format="base64"))
    assert [floats(text) for text in packed] == plain


async def test_dimensions_cut_and_scale_again(embedding: Embedding) -> None:
    whole = vectors(await embedding.embed("abc", dimensions=HIDDEN))[0]
    cut = vectors(await embedding.embed("abc", dimensions=SHORT))[0]
    length = math.sqrt(sum(value * value for value in whole[:SHORT]))
    assert cut == pytest.approx([value / length for value in whole[:SHORT]], abs=CLOSE)
    packed = vectors(await embedding.embed("abc", dimensions=SHORT, encoding_format="base64"))[0]
    assert floats(packed) == cut


async def test_many_inputs_come_back_in_order(embedding: Embedding) -> None:
    texts = [chr(ord("a") + number % 26) * (1 + number % 40) for number in range(INPUTS_MAX)]
    made = vectors(await embedding.embed(texts, encoding_format="base64"))
    some = range(0, INPUTS_MAX, 97)
    wanted = expected(embedding.model, [texts[place] for place in some])
    for place, row in zip(some, wanted, strict=True):
        assert floats(made[place]) == pytest.approx(row, abs=CLOSE)


LONG = "a" * (CONTEXT - 1)
REFUSALS: list[tuple[Any, dict[str, Any], str | None, str]] = [
    ("", {}, None, "input"),
    ([], {}, None, "input"),
    (["a", ""], {}, None, "input[1]"),
    ([[5], []], {}, None, "input[1]"),
    (["a", 5], {}, None, "input"),
    ([[5], 5], {}, None, "input"),
    ([5.5], {}, None, "input[0]"),
    (None, {}, "missing_required_parameter", "input"),
    ([-1], {}, None, "input"),
    ([len(PIECES)], {}, None, "input"),
    ([[5], [len(PIECES)]], {}, None, "input[1]"),
    (["a"] * (INPUTS_MAX + 1), {}, None, "input"),
    (LONG, {}, "context_length_exceeded", "input"),
    (["a", LONG], {}, "context_length_exceeded", "input[1]"),
    ([[5], [5] * (CONTEXT + 1)], {}, "context_length_exceeded", "input[1]"),
    (["a", " " * 100_000], {}, "context_length_exceeded", "input[1]"),
    ("a", {"dimensions": SHORT + 1}, "unsupported_dimensions", "dimensions"),
    ("a", {"dimensions": 0}, None, "dimensions"),
    ("a", {"encoding_format": "int8"}, None, "encoding_format"),
    ("a", {"model": "none"}, "model_not_found", "model"),
    ("a", {"model": MODEL}, "model_task_mismatch", "model"),
]


@pytest.mark.parametrize(("given", "fields", "code", "param"), REFUSALS)
async def test_refusals_name_the_field(
    embedding: Embedding, given: Any, fields: dict[str, Any], code: str | None, param: str
) -> None:
    answer = await embedding.embed(given, **fields)
    assert answer.status_code == (404 if code == "model_not_found" else 400)
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (code, param), error
    charged = embedding.under_test.ledger.settled.values()
    assert all(each.amount_nano == 0 for each in charged)


async def test_what_just_fits_is_embedded(embedding: Embedding) -> None:
    answer = await embedding.embed("a" * (CONTEXT - 2))
    assert len(vectors(answer)[0]) == HIDDEN
    assert answer.json()["usage"]["prompt_tokens"] == CONTEXT


async def test_too_many_tokens_together_are_refused(
    embedding: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.gateway.s3_tokenize.window.INPUTS_TOKENS_MAX", 100)
    assert (await embedding.embed(["a" * 40, "a" * 40])).status_code == 200
    answer = await embedding.embed(["a" * 40, "a" * 40, "a" * 40])
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")


async def test_the_encoder_does_not_chat(embedding: Embedding) -> None:
    body = {"model": ENCODER, "messages": [{"role": "user", "content": "a"}]}
    answer = await embedding.client.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "model_task_mismatch")
    assert "/v1/embeddings" in error["message"]


async def test_input_is_charged_and_nothing_else(embedding: Embedding) -> None:
    answer = await embedding.embed(TEXTS)
    tokens = answer.json()["usage"]["prompt_tokens"]
    (settled,) = embedding.under_test.ledger.settled.values()
    assert settled.counts == TokenCounts(uncached=tokens, cached=0, output=0)
    assert settled.amount_nano == charge_nano(PRICE, settled.counts) > 0
    assert settled.amount_nano <= settled.held_nano
    assert answer.json()["sluice"]["cost_usd"].startswith("0.00000")
    taken = embedding.under_test.limiter.taken[0]
    await until(lambda: embedding.under_test.limiter.corrections == [tokens - taken])


async def test_tokens_are_counted_exactly_where_the_bound_does_not_fit(
    embedding: Embedding,
) -> None:
    """The hold is made again with the exact count before the request is refused."""
    ledger = embedding.under_test.ledger
    ledger.room_nano = charge_nano(PRICE, TokenCounts(uncached=5, cached=0, output=0))
    assert len(vectors(await embedding.embed("abc"))) == 1
    answer = await embedding.embed("abcd")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "insufficient_quota")


async def test_seven_stages_are_recorded(embedding: Embedding) -> None:
    answer = await embedding.embed(TEXTS)
    (record,) = embedding.under_test.recorder.records
    assert (record.operation, record.model, record.pool) == ("embedding", ENCODER, "embeddings")
    assert (record.status, record.stream, record.output_tokens) == (200, False, 0)
    assert record.prompt_tokens == answer.json()["usage"]["prompt_tokens"]
    assert record.ttft_us == -1 and record.node == "encoder"
    times = unpack_spans(record.spans)
    ran = [span.name for span, (start, _) in zip(SPANS, times, strict=True) if start != ABSENT]
    assert [name for name in ran if "." not in name] == [name for name, _, _ in STAGES]
    assert {"s3_tokenize.encode", "s3_tokenize.window", "s5_infer.prefill"} <= {*ran}
    assert {"s6_finish.serialize", "s7_bill.settle"} <= {*ran}
    assert "s6_finish.detokenize" not in ran


async def test_models_lists_it(embedding: Embedding) -> None:
    listed = (await embedding.client.get("/v1/models")).json()["data"]
    assert {each["id"] for each in listed} == {MODEL, ENCODER}
