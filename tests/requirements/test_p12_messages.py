"""P12: Anthropic's API by the shipped model and its real engine: what its clients send and read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import jsonschema
import pytest

from tests.gateway.anthropic.test_events import joined, read
from tests.support.fleet import MODEL
from tests.support.serving import Serving
from tests.support.shipped_node import shipped_node

PATH = "/v1/messages"
MESSAGES: Any = [{"role": "user", "content": "Book a room in Rome for two nights."}]
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "Oslo"], "description": "Where."},
        "nights": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city", "nights"],
    "additionalProperties": False,
}
BOOK: Any = {"name": "book", "description": "Books a room.", "input_schema": SCHEMA}
CACHE = {"cache_control": {"type": "ephemeral"}}


@pytest.fixture
async def client(bare: Serving) -> AsyncIterator[httpx2.AsyncClient]:
    """Of a gateway with one node that runs the shipped model."""
    async with shipped_node(bare.under_test):
        yield bare.client


async def ask(client: httpx2.AsyncClient, **fields: Any) -> dict[str, Any]:
    """A message, whole or as its events make it."""
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 200, "temperature": 0, **fields}
    answer = await client.post(PATH, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    whole: dict[str, Any] = joined(read(answer.content)) if body.get("stream") else answer.json()
    return whole


async def test_a_stream_says_what_a_whole_answer_does(client: httpx2.AsyncClient) -> None:
    whole = await ask(client, max_tokens=12, system="Be brief.")
    streamed = await ask(client, max_tokens=12, system="Be brief.", stream=True)
    assert whole["content"] == streamed["content"] and whole["content"][0]["text"]
    assert whole["stop_reason"] == streamed["stop_reason"]
    assert whole["usage"]["output_tokens"] == streamed["usage"]["output_tokens"]


async def test_a_tool_is_called_and_its_result_read(client: httpx2.AsyncClient) -> None:
    forced = {"type": "any", "disable_parallel_tool_use": True}
    for stream in (False, True):
        answer = await ask(client, tools=[BOOK], tool_choice=forced, stream=stream)
        (call,) = answer["content"]
        assert (answer["stop_reason"], call["type"], call["name"]) == (
            "tool_use",
            "tool_use",
            "book",
        )
        jsonschema.validate(call["input"], SCHEMA)
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "booked", **CACHE}
    talk = [
        *MESSAGES,
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [result]},
    ]
    later = await ask(client, messages=talk, tools=[BOOK], max_tokens=8)
    read_tokens = later["usage"]["input_tokens"] + later["usage"]["cache_read_input_tokens"]
    assert read_tokens > answer["usage"]["input_tokens"]
    assert later["usage"]["cache_read_input_tokens"] > 0


async def test_a_format_is_held(client: httpx2.AsyncClient) -> None:
    wanted = {"format": {"type": "json_schema", "schema": SCHEMA}}
    answer = await ask(client, output_config=wanted, stream=True)
    jsonschema.validate(json.loads(answer["content"][0]["text"]), SCHEMA)


async def test_what_a_coding_agent_sends(client: httpx2.AsyncClient) -> None:
    names = {"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}}
    note = {"name": "Note", "input_schema": {"type": "object", "properties": {"all": names}}}
    version = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0.abc;"}
    fields: dict[str, Any] = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Say hello."}]},
            {"role": "system", "content": [{"type": "text", "text": "Be kind.", **CACHE}]},
        ],
        "system": [version, {"type": "text", "text": "You are an agent.", **CACHE}],
        "tools": [BOOK, note, {"type": "web_search_20250305", "name": "web_search"}],
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": "{}"},
    }
    beta = f"{PATH}?beta=true"
    body = {"model": MODEL, "max_tokens": 8, "stream": True, **fields}
    streamed = await client.post(beta, json=body, headers={"anthropic-version": "2023-06-01"})
    assert joined(read(streamed.content))["usage"]["output_tokens"] > 0
    counted = await client.post(f"{PATH}/count_tokens", json={"model": MODEL, **fields})
    usage = joined(read(streamed.content))["usage"]
    assert counted.json()["input_tokens"] == usage["input_tokens"]


async def test_many_at_once(client: httpx2.AsyncClient) -> None:
    answers = await asyncio.gather(*(ask(client, max_tokens=6, stream=True) for _ in range(4)))
    assert len({answer["content"][0]["text"] for answer in answers}) == 1
    assert len({answer["id"] for answer in answers}) == 4
