"""The official Python client: chat, tools, structured output, embeddings and Responses."""

from __future__ import annotations

from typing import Any, Literal

import openai
from pydantic import BaseModel
from session import EMBEDDER, KEY, MODEL, SLUICE, STORED, act, report

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Find a room.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
ASKED: Any = [{"role": "user", "content": "Find a room in Rome."}]


class Room(BaseModel):
    """A structured answer."""

    city: Literal["Rome", "Oslo"]
    floor: Literal[1, 2]


@act
def chat() -> None:
    # docs
    from openai import OpenAI

    client = OpenAI(base_url=f"{SLUICE}/v1", api_key=KEY)
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is a hold?"}],
        max_completion_tokens=32,
    )
    print(answer.choices[0].message.content)
    # end
    assert answer.usage is not None and answer.usage.completion_tokens > 0
    assert answer.choices[0].finish_reason in ("stop", "length")


client = openai.OpenAI(base_url=f"{SLUICE}/v1", api_key=KEY)


@act
def streamed() -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=ASKED, max_tokens=16, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    assert any(each.choices and each.choices[0].delta.content for each in chunks)
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens > 0


@act
def history_as_it_came() -> None:
    """What hand-written loops do: the answer goes back as the client dumps it."""
    messages = list(ASKED)
    for _ in range(2):
        answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=16)
        messages.append(answer.choices[0].message.model_dump())
        messages.append({"role": "user", "content": "And in Oslo?"})
    assert answer.choices[0].message.role == "assistant"


@act
def tools() -> None:
    """A forced call, its result, and the answer to it."""
    wanted: Any = {"type": "function", "function": {"name": "find"}}
    first = client.chat.completions.create(
        model=MODEL, messages=ASKED, tools=[TOOL], tool_choice=wanted, max_tokens=100
    )
    (call,) = first.choices[0].message.tool_calls
    assert call.function.name == "find" and first.choices[0].finish_reason == "tool_calls"
    history = [
        *ASKED,
        first.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "Room 7"},
    ]
    second = client.chat.completions.create(
        model=MODEL, messages=history, tools=[TOOL], tool_choice="none", max_tokens=16
    )
    assert second.choices[0].message.tool_calls is None


@act
def streamed_tools() -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=ASKED, tools=[TOOL], tool_choice="required", max_tokens=400
    ) as stream:
        done = stream.get_final_completion()
    assert done.choices[0].message.tool_calls[0].function.name == "find"


@act
def parsed() -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=ASKED, response_format=Room, max_tokens=100
    )
    assert isinstance(answer.choices[0].message.parsed, Room)


@act
def fields_that_ask_for_nothing() -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=ASKED, max_tokens=8, store=False, safety_identifier="someone",
        prompt_cache_key="a-session", user="someone", metadata={"job": "test"},
    )  # fmt: skip
    assert answer.usage is not None


@act
def text_completions() -> None:
    answer = client.completions.create(model=MODEL, prompt=["One", "Two"], max_tokens=8)
    assert [each.index for each in answer.choices] == [0, 1]


@act
def embeddings() -> None:
    made = client.embeddings.create(model=EMBEDDER, input=["one", "two"])
    assert [each.index for each in made.data] == [0, 1] and len(made.data[0].embedding) > 100


@act
def models() -> None:
    assert {MODEL, EMBEDDER} <= {each.id for each in client.models.list()}


@act
def responses() -> None:
    answer = client.responses.create(
        model=MODEL, instructions="Be brief.", input="What is a hold?", max_output_tokens=32
    )
    assert answer.usage is not None and answer.usage.output_tokens > 0
    assert answer.status in ("completed", "incomplete") and answer.output[0].type == "message"


@act
def responses_streamed() -> None:
    stream = client.responses.create(model=MODEL, input=ASKED, max_output_tokens=16, stream=True)
    events = list(stream)
    assert events[0].type == "response.created"
    assert "response.output_text.delta" in [each.type for each in events]
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[-1].response.usage.output_tokens > 0


@act
def responses_tools() -> None:
    """A forced call and its result, all of it sent back."""
    function: Any = {"type": "function", "strict": True, **TOOL["function"]}
    wanted: Any = {"type": "function", "name": "find"}
    first = client.responses.create(
        model=MODEL, input=ASKED, tools=[function], tool_choice=wanted, max_output_tokens=100
    )
    (call,) = [each for each in first.output if each.type == "function_call"]
    assert call.name == "find"
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Room 7"}
    second = client.responses.create(
        model=MODEL, input=[*ASKED, *first.output, result], tools=[function], tool_choice="none",
        max_output_tokens=16,
    )  # fmt: skip
    assert second.output_text is not None


@act
def responses_stored_tools() -> None:
    """The tool is in the gateway: the request names it, and forces its call."""
    wanted: Any = {"type": "function", "name": STORED}
    raw = client.responses.with_raw_response.create(
        model=MODEL, input=ASKED, tool_choice=wanted, max_output_tokens=100,
        extra_body={"stored_tools": [{"id": STORED}]},
    )  # fmt: skip
    assert raw.headers["x-sluice-tools"] == f"{STORED}:1"
    (call,) = [each for each in raw.parse().output if each.type == "function_call"]
    assert call.name == STORED and "city" in call.arguments


@act
def responses_parsed() -> None:
    answer = client.responses.parse(
        model=MODEL, input=ASKED, text_format=Room, max_output_tokens=100
    )
    assert isinstance(answer.output_parsed, Room)


report()
