"""The official clients against `/v1/embeddings`: floats, their default base64, and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI

from tests.support.encoders import ENCODER, HIDDEN, SHORT, add_encoder, encoder_node, make_encoder
from tests.support.node_client import run
from tests.support.ports import KEY
from tests.support.serving import Serving
from tests.support.waiting import until

TEXTS = ["abc", "hello world"]
TOKENS = 5 + 12


@pytest.fixture
async def embedding(bare: Serving, tmp_path: Path) -> AsyncIterator[Serving]:
    """A gateway with a real encoder."""
    folder = make_encoder(tmp_path / "encoder")
    add_encoder(bare.under_test)
    async with encoder_node(bare.under_test, folder):
        await until(lambda: bare.under_test.fleet.candidates(ENCODER))
        yield bare
        await bare.under_test.at_rest()


async def test_python(embedding: Serving) -> None:
    async with AsyncOpenAI(base_url=f"{embedding.under_test.url}/v1", api_key=KEY) as client:
        packed = await client.embeddings.create(model=ENCODER, input=TEXTS)
        plain = await client.embeddings.create(model=ENCODER, input=TEXTS, encoding_format="float")
        assert [each.embedding for each in packed.data] == [each.embedding for each in plain.data]
        assert [len(each.embedding) for each in plain.data] == [HIDDEN, HIDDEN]
        assert (plain.usage.prompt_tokens, plain.usage.total_tokens) == (TOKENS, TOKENS)
        short = await client.embeddings.create(model=ENCODER, input=[[5, 6]], dimensions=SHORT)
        assert len(short.data[0].embedding) == SHORT
        with pytest.raises(openai.BadRequestError) as caught:
            await client.embeddings.create(model=ENCODER, input=["a", ""])
        assert caught.value.param == "input[1]"


async def test_node(embedding: Serving) -> None:
    seen = await run("embed.mjs", embedding, model=ENCODER)
    assert len(seen["plain"]) == 2 and len(seen["plain"][0]) == HIDDEN
    assert seen["packed"] == seen["plain"]
    assert seen["short"] == SHORT
    assert seen["usage"] == {"prompt_tokens": TOKENS, "total_tokens": TOKENS}
    refused = {"name": "BadRequestError", "status": 400, "code": None, "param": "input[1]"}
    assert seen["badField"] == refused
