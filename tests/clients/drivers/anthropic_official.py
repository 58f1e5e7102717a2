"""Anthropic's Python client: messages, streams, tools, counts, models and errors."""

from __future__ import annotations

from typing import Any

import anthropic
from session import KEY, MODEL, SLUICE, STORED, act, report

TOOL: Any = {
    "name": "find",
    "description": "Find a room.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
ASKED: Any = [{"role": "user", "content": "Find a room in Rome."}]


@act
def chat() -> None:
    # docs
    from anthropic import Anthropic

    client = Anthropic(base_url=SLUICE, api_key=KEY)
    answer = client.messages.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is a hold?"}],
        max_tokens=32,
    )
    print(answer.content)
    # end
    assert answer.type == "message" and answer.role == "assistant"
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0
    assert answer.stop_reason in ("end_turn", "max_tokens")


client = anthropic.Anthropic(base_url=SLUICE, api_key=KEY)


@act
def system_and_parts() -> None:
    parts = [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]
    answer = client.messages.create(
        model=MODEL, max_tokens=16, messages=[{"role": "user", "content": parts}],
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        stop_sequences=["never this"], metadata={"user_id": "someone"},
        extra_body={"temperature": 0.5},
    )  # fmt: skip
    assert answer.usage.output_tokens > 0


@act
def bearer() -> None:
    other = anthropic.Anthropic(base_url=SLUICE, auth_token=KEY, api_key=None)
    assert other.messages.create(model=MODEL, messages=ASKED, max_tokens=4).type == "message"


@act
def streamed() -> None:
    with client.messages.stream(model=MODEL, messages=ASKED, max_tokens=16) as stream:
        kinds = [each.type for each in stream]
        done = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert "text" in kinds and done.usage.output_tokens > 0


@act
def tools() -> None:
    """A forced call, its result, and the answer to it."""
    first = client.messages.create(
        model=MODEL, messages=ASKED, tools=[TOOL], max_tokens=100,
        tool_choice={"type": "tool", "name": "find"},
    )  # fmt: skip
    (call,) = [part for part in first.content if part.type == "tool_use"]
    assert call.name == "find" and call.input["city"] in ("Rome", "Oslo")
    assert first.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Room 7"}
    history: Any = [
        *ASKED,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(
        model=MODEL, messages=history, tools=[TOOL], tool_choice={"type": "none"}, max_tokens=16
    )
    assert second.stop_reason in ("end_turn", "max_tokens")


@act
def stored_tools() -> None:
    """The tool is in the gateway: the request names it, and forces its call."""
    asked: Any = {
        "model": MODEL,
        "messages": ASKED,
        "tool_choice": {"type": "tool", "name": STORED},
    }
    named: Any = {"stored_tools": [{"id": STORED, "version": 1}]}
    raw = client.messages.with_raw_response.create(**asked, max_tokens=100, extra_body=named)
    assert raw.headers["x-sluice-tools"] == f"{STORED}:1"
    (call,) = [part for part in raw.parse().content if part.type == "tool_use"]
    assert call.name == STORED and call.input["city"] in ("Rome", "Oslo")
    counted = client.messages.count_tokens(model=MODEL, messages=ASKED, extra_body=named)
    alone = client.messages.count_tokens(model=MODEL, messages=ASKED)
    assert counted.input_tokens > alone.input_tokens


@act
def streamed_tools() -> None:
    with client.messages.stream(
        model=MODEL, messages=ASKED, tools=[TOOL], tool_choice={"type": "any"}, max_tokens=400
    ) as stream:
        done = stream.get_final_message()
    assert done.stop_reason == "tool_use" and done.content[-1].input["city"] in ("Rome", "Oslo")


@act
def more_tokens_than_the_model_makes() -> None:
    with client.messages.stream(
        model=MODEL, messages=ASKED, max_tokens=32_000, stop_sequences=["e"]
    ) as stream:
        assert stream.get_final_message().usage.output_tokens > 0


@act
def counted() -> None:
    counts = client.messages.count_tokens(model=MODEL, messages=ASKED, tools=[TOOL])
    assert counts.input_tokens > 0


@act
def models() -> None:
    listed = {each.id: each for each in client.models.list()}
    assert listed[MODEL].display_name and listed[MODEL].created_at


report()
