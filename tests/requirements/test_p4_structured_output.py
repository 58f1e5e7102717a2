"""P4, its second half: structured output and tool calls, by the shipped model and its real engine.

The model was never taught either. That what it writes validates is the grammar's doing alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import openai
import pytest
from openai import AsyncOpenAI

from tests.support.fleet import MODEL
from tests.support.ports import KEY
from tests.support.serving import Serving
from tests.support.shipped_node import shipped_node

MESSAGES: Any = [{"role": "user", "content": "Book a room in Rome for two nights."}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "Oslo"]},
        "nights": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city", "nights"],
    "additionalProperties": False,
}
BOOK: Any = {
    "type": "function",
    "function": {"name": "book", "description": "Books a room.", "parameters": SCHEMA},
}
CANCEL: Any = {"type": "function", "function": {"name": "cancel"}}


@pytest.fixture
async def client(bare: Serving) -> AsyncIterator[AsyncOpenAI]:
    """The official client of a gateway with one node that runs the shipped model."""
    async with (
        shipped_node(bare.under_test),
        AsyncOpenAI(base_url=f"{bare.under_test.url}/v1", api_key=KEY, max_retries=0) as client,
    ):
        yield client


async def ask(client: AsyncOpenAI, **fields: Any) -> Any:
    """A chat completion."""
    wanted = {"model": MODEL, "messages": MESSAGES, "max_tokens": 200, "seed": 1, **fields}
    return await client.chat.completions.create(**wanted)


async def test_an_answer_validates_against_its_schema(client: AsyncOpenAI) -> None:
    named = {"name": "booking", "schema": SCHEMA, "strict": True}
    answer = await ask(client, n=2, response_format={"type": "json_schema", "json_schema": named})
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)


async def test_an_answer_ends_where_its_schema_does_not_say_that_it_may_go_on(
    client: AsyncOpenAI,
) -> None:
    schema = {name: value for name, value in SCHEMA.items() if name != "additionalProperties"}
    wanted = {"type": "json_schema", "json_schema": {"name": "booking", "schema": schema}}
    book = {"type": "function", "function": {"name": "book", "parameters": schema}}
    told = await ask(client, n=4, response_format=wanted)
    called = await ask(client, n=4, tools=[book], tool_choice="required", parallel_tool_calls=False)
    texts = [choice.message.content for choice in told.choices]
    texts += [choice.message.tool_calls[0].function.arguments for choice in called.choices]
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert {each.finish_reason for each in told.choices} == {"stop"}
    assert {each.finish_reason for each in called.choices} == {"tool_calls"}


async def test_a_stream_validates_too(client: AsyncOpenAI) -> None:
    named = {"name": "booking", "schema": SCHEMA}
    text = ""
    stream = await ask(
        client, stream=True, response_format={"type": "json_schema", "json_schema": named}
    )
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
    jsonschema.validate(json.loads(text), SCHEMA)


async def test_any_json_object_and_the_other_kinds(client: AsyncOpenAI) -> None:
    answer = await ask(client, response_format={"type": "json_object"}, temperature=0)
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(json.loads(answer.choices[0].message.content), dict)
    for structured, pattern in (
        ({"regex": "[A-Z]{2}-[0-9]{3}"}, "[A-Z]{2}-[0-9]{3}"),
        ({"choice": ["yes", "no"]}, "yes|no"),
        ({"grammar": 'start: "a" start "b" | "c"'}, "a*cb*"),
    ):
        answer = await ask(client, extra_body={"structured_outputs": structured})
        assert answer.choices[0].finish_reason == "stop"
        assert re.fullmatch(pattern, answer.choices[0].message.content)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "book"}}])
async def test_a_call_is_forced_and_its_arguments_validate(
    client: AsyncOpenAI, choice: Any
) -> None:
    answer = await ask(client, tools=[BOOK, CANCEL], tool_choice=choice, parallel_tool_calls=False)
    (made,) = answer.choices
    assert (made.finish_reason, made.message.content) == ("tool_calls", None)
    (call,) = made.message.tool_calls
    expected = {"book": SCHEMA, "cancel": {"type": "object", "maxProperties": 0}}
    jsonschema.validate(json.loads(call.function.arguments), expected[call.function.name])
    if choice != "required":
        assert call.function.name == "book"
    result = {"role": "tool", "tool_call_id": call.id, "content": "done"}
    messages = [*MESSAGES, made.message, result]
    later = await ask(client, messages=messages, tools=[BOOK, CANCEL], max_tokens=8)
    assert later.usage.prompt_tokens > answer.usage.prompt_tokens


async def test_calls_stream_as_deltas(client: AsyncOpenAI) -> None:
    arguments, names, finish = "", [], None
    stream = await ask(client, stream=True, tools=[BOOK], tool_choice="required")
    async for chunk in stream:
        (choice,) = chunk.choices
        for part in choice.delta.tool_calls or []:
            if part.function.name:
                names.append((part.index, part.type, part.function.name, bool(part.id)))
            if part.index == 0:
                arguments += part.function.arguments or ""
        finish = choice.finish_reason or finish
    assert names[0] == (0, "function", "book", True)
    jsonschema.validate(json.loads(arguments), SCHEMA)
    assert finish in ("tool_calls", "length")


async def test_what_may_call_may_also_talk(client: AsyncOpenAI) -> None:
    answer = await ask(client, tools=[BOOK], temperature=0, max_tokens=20)
    assert answer.choices[0].message.content and not answer.choices[0].message.tool_calls


@pytest.mark.parametrize(
    ("schema", "param"),
    [
        ({"type": "array", "uniqueItems": True}, "schema.uniqueItems"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "schema"),
        ({"type": "object", "properties": {f"f{n}": {} for n in range(1500)}}, "schema"),
    ],
)
async def test_bombs_and_what_cannot_be_followed_are_refused_and_named(
    client: AsyncOpenAI, schema: dict[str, Any], param: str
) -> None:
    named = {"name": "n", "schema": schema}
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, response_format={"type": "json_schema", "json_schema": named})
    assert caught.value.param == f"response_format.json_schema.{param}"
