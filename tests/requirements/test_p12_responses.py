"""P12: the Responses API on the same seven stages, by the official client and the shipped model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from controlplane.kernel.money import usd_text
from tests.support.fleet import MODEL
from tests.support.ports import KEY
from tests.support.serving import Serving
from tests.support.shipped_node import shipped_node

QUESTION = "Book a room in Rome for two nights."
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "nights": {"enum": [1, 2, 3]}},
    "required": ["city", "nights"],
    "additionalProperties": False,
}
BOOK: Any = {"type": "function", "name": "book", "description": "Books.", "parameters": SCHEMA}


class Booking(BaseModel):
    city: str
    nights: int


@pytest.fixture
async def client(steady: Serving) -> AsyncIterator[AsyncOpenAI]:
    """The official client of a gateway with one node that runs the shipped model."""
    async with (
        shipped_node(steady.under_test),
        AsyncOpenAI(base_url=f"{steady.under_test.url}/v1", api_key=KEY, max_retries=0) as client,
    ):
        yield client


async def test_a_whole_response(client: AsyncOpenAI, steady: Serving) -> None:
    answer = await client.responses.create(
        model=MODEL,
        instructions="Answer briefly.",
        input=QUESTION,
        max_output_tokens=12,
        temperature=0,
        metadata={"ticket": "7"},
    )
    assert answer.id.startswith("resp_")
    assert answer.object == "response"
    assert (answer.instructions, answer.metadata) == ("Answer briefly.", {"ticket": "7"})
    (message,) = answer.output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    assert answer.output_text == part.text
    assert answer.usage is not None
    assert answer.usage.output_tokens <= 12
    cut = answer.usage.output_tokens == 12
    assert answer.status == ("incomplete" if cut else "completed")
    if cut:
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"
    # The charge that the client reads is the one on the ledger.
    (settled,) = steady.under_test.ledger.settled.values()
    assert answer.model_extra is not None
    assert answer.model_extra["sluice"]["cost_usd"] == usd_text(settled.amount_nano)


async def test_a_stream_is_the_whole_response_in_events(client: AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "input": QUESTION, "max_output_tokens": 12, "temperature": 0}
    whole = await client.responses.create(**asked)
    events = [event async for event in await client.responses.create(**asked, stream=True)]
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        f"response.{whole.status}",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert deltas == last.response.output_text == whole.output_text
    assert last.response.usage is not None
    assert whole.usage is not None
    assert last.response.usage.output_tokens == whole.usage.output_tokens


async def test_a_tool_is_called_and_answered(client: AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "tools": [BOOK], "tool_choice": "required", "temperature": 0}
    first = await client.responses.create(**asked, input=QUESTION, max_output_tokens=200)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert call.name == "book"
    jsonschema.validate(json.loads(call.arguments), SCHEMA)
    history: Any = [{"role": "user", "content": QUESTION}]
    history += [item.model_dump() for item in first.output]
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "Booked."})
    second = await client.responses.create(model=MODEL, input=history, max_output_tokens=8)
    assert [item.type for item in second.output] == ["message"]


async def test_the_clients_own_helpers_read_the_stream(client: AsyncOpenAI) -> None:
    asked: Any = {"model": MODEL, "input": QUESTION, "max_output_tokens": 200, "temperature": 0}
    async with client.responses.stream(**asked, tools=[BOOK], tool_choice="required") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds
    assert "response.function_call_arguments.done" in kinds
    (call,) = [item for item in final.output if item.type == "function_call"]
    jsonschema.validate(json.loads(call.arguments), SCHEMA)


async def test_structured_text_is_parsed(client: AsyncOpenAI) -> None:
    answer = await client.responses.parse(
        model=MODEL, input=QUESTION, text_format=Booking, max_output_tokens=200, temperature=0
    )
    if answer.status == "completed":
        assert isinstance(answer.output_parsed, Booking)


async def test_log_probabilities_come_where_they_are_included(client: AsyncOpenAI) -> None:
    answer = await client.responses.create(
        model=MODEL,
        input=QUESTION,
        max_output_tokens=4,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )
    (message,) = answer.output
    assert message.type == "message"
    (part,) = message.content
    assert part.type == "output_text"
    assert part.logprobs
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


async def test_wrong_input_is_named_as_the_client_wrote_it(client: AsyncOpenAI) -> None:
    items: Any = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model=MODEL, input=items)
    assert refused.value.param == "input[0].content[0]"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model=MODEL, input="Hi", previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"


async def test_what_only_openai_runs_is_left_out_and_named(client: AsyncOpenAI) -> None:
    tools: Any = [
        {"type": "web_search"},
        {"type": "namespace", "name": "crm", "description": "", "tools": [BOOK]},
    ]
    answer = await client.responses.with_raw_response.create(
        model=MODEL,
        input=QUESTION,
        tools=tools,
        tool_choice="required",
        store=False,
        include=["reasoning.encrypted_content"],
        reasoning={"summary": "auto"},
        max_output_tokens=200,
        temperature=0,
    )
    ignored = answer.headers["x-sluice-ignored"].split(", ")
    assert "tools[0]" in ignored
    read = answer.parse()
    (call,) = [item for item in read.output if item.type == "function_call"]
    assert (call.name, call.namespace) == ("book", "crm")
