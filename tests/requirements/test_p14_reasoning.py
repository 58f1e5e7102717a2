"""P14: models that think, by the shipped model and its real engine, and by a server behind a node.

The shipped model was never taught to think: two of its tokens stand for the marks, and a bias makes
it end its thoughts. What of its tokens is thought, and what the answer is held to, is ours.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import msgspec
import openai
import pytest
from openai import AsyncOpenAI

from inference.contract.grammar import GRAMMAR_BYTES_MAX
from inference.text.decode import ThinkMarks
from tests.support.fleet import MODEL
from tests.support.ports import KEY
from tests.support.relay import relaying
from tests.support.serving import Serving
from tests.support.shipped import no_end
from tests.support.shipped_node import shipped_node
from tests.support.thinking import make_shipped, text_of
from tests.support.upstream import text_chunk, thought_chunk, usage_chunk

MESSAGES: Any = [{"role": "user", "content": "Book a room in Rome for two nights."}]
SWITCHED = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% elif enable_thinking is defined %}{% else %}<think>\n{% endif %}"
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
BOOK: Any = {"type": "function", "function": {"name": "book", "parameters": SCHEMA}}
FORMATS: dict[str, dict[str, Any]] = {
    "schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    },
    "regex": {"extra_body": {"structured_outputs": {"regex": "(Rome|Oslo)/[0-9]{2}"}}},
    "choice": {"extra_body": {"structured_outputs": {"choice": ["Rome", "O{s}lo"]}}},
}


@pytest.fixture
async def client(
    bare: Serving, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AsyncOpenAI]:
    """The official client of a gateway with one node that runs the shipped model, with marks."""
    folder = make_shipped(tmp_path_factory.mktemp("shipped"), SWITCHED)
    async with (
        shipped_node(bare.under_test, folder),
        AsyncOpenAI(base_url=f"{bare.under_test.url}/v1", api_key=KEY, max_retries=0) as client,
    ):
        marks = text_of(folder).marks
        assert isinstance(marks, ThinkMarks)
        client.ends = {str(marks.closing): 10}  # type: ignore[attr-defined]
        client.begins = {str(marks.opening): 100}  # type: ignore[attr-defined]
        yield client


async def ask(client: Any, **fields: Any) -> Any:
    wanted = {"model": MODEL, "messages": MESSAGES, "max_tokens": 200, "seed": 3}
    return await client.chat.completions.create(**{**wanted, "logit_bias": client.ends, **fields})


def checked(name: str, content: str) -> None:
    match name:
        case "schema":
            jsonschema.validate(json.loads(content), SCHEMA)
        case "regex":
            assert re.fullmatch("(Rome|Oslo)/[0-9]{2}", content)
        case _:
            assert content in ("Rome", "O{s}lo")


@pytest.mark.parametrize("name", FORMATS)
async def test_thoughts_are_free_and_the_answer_is_held(client: Any, name: str) -> None:
    answer = await ask(client, n=2, **FORMATS[name])
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        checked(name, choice.message.content)
    assert any(choice.message.reasoning_content for choice in answer.choices)
    assert answer.usage.completion_tokens_details.reasoning_tokens > 2


async def test_a_grammar_without_thoughts_is_held_at_once(client: Any) -> None:
    answer = await ask(client, reasoning_effort="none", **FORMATS["schema"])
    checked("schema", answer.choices[0].message.content)
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


async def test_a_model_may_begin_them_itself(client: Any) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": True}}
    plain = await ask(client, extra_body=extra, **FORMATS["schema"])
    checked("schema", plain.choices[0].message.content)
    bias = {**client.begins, **client.ends}
    answer = await ask(client, extra_body=extra, logit_bias=bias, **FORMATS["schema"])
    checked("schema", answer.choices[0].message.content)
    assert answer.usage.completion_tokens_details.reasoning_tokens >= 2


async def test_calls_come_after_the_thoughts(client: Any) -> None:
    answer = await ask(client, tools=[BOOK], tool_choice="required")
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    jsonschema.validate(json.loads(message.tool_calls[0].function.arguments), SCHEMA)
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0


async def test_a_stream_says_the_same_and_is_charged_for_all(client: Any, bare: Serving) -> None:
    asked = {"max_tokens": 40, "logit_bias": {**client.ends, **no_end()}}
    whole = await ask(client, **asked)
    stream = await ask(client, **asked, stream=True, stream_options={"include_usage": True})
    thought = text = ""
    async for chunk in stream:
        usage = chunk.usage
        for choice in chunk.choices:
            thought += getattr(choice.delta, "reasoning_content", None) or ""
            text += choice.delta.content or ""
    message = whole.choices[0].message
    assert (thought, text) == (message.reasoning_content, message.content)
    assert thought and text
    assert usage == whole.usage
    counted = usage.completion_tokens_details.reasoning_tokens
    assert 0 < counted < usage.completion_tokens == 40
    settled = list(bare.under_test.ledger.settled.values())[-1]
    assert settled.counts.output == 40
    receipt = msgspec.json.decode(bare.under_test.recorder.records[-1].receipt)
    assert receipt["reasoning_tokens"] == counted
    assert 0 < receipt["first_thought_us"] < receipt["first_answer_us"]


async def test_a_grammar_that_grows_too_large_is_refused(client: Any) -> None:
    bare = msgspec.json.encode({**SCHEMA, "description": ""})
    schema = {**SCHEMA, "description": "x" * (GRAMMAR_BYTES_MAX - len(bare))}
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError) as refused:
        await ask(client, response_format=format)
    assert refused.value.param == "response_format.json_schema.schema"


async def test_a_server_behind_a_node_is_asked_and_read(bare: Serving) -> None:
    wish = {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": True}}
    async with relaying(bare) as relay:
        asked, exchange = await relay.ask(**wish)
        assert {name: exchange.body[name] for name in wish} == wish
        chunks = (thought_chunk("One.", field="reasoning"), text_chunk("2", finish="stop"))
        await exchange.answer(*chunks, usage_chunk(9, 4))
        answer = await asked
        await asyncio.sleep(0)
    assert "x-sluice-ignored" not in answer.headers
    message = answer.json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("One.", "2")
    receipt = msgspec.json.decode(bare.under_test.recorder.records[-1].receipt)
    assert receipt["usage"] == "reported by the engine, reasoning tokens estimated"
