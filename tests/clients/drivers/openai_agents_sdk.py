"""OpenAI's Agents SDK: runs, streams, a forced tool, typed output and a handoff."""

from __future__ import annotations

import os
from typing import Any, Literal

from agents import (
    Agent,
    ModelSettings,
    Runner,
    function_tool,
    set_default_openai_api,
    set_tracing_disabled,
)
from pydantic import BaseModel
from session import KEY, MODEL, SLUICE, act, report

set_tracing_disabled(True)
os.environ.update(OPENAI_BASE_URL=f"{SLUICE}/v1", OPENAI_API_KEY=KEY)


class Room(BaseModel):
    """A structured answer."""

    city: Literal["Rome", "Oslo"]
    floor: Literal[1, 2]


@function_tool
def find(city: Literal["Rome", "Oslo"]) -> str:
    """Find a room."""
    return f"Room 7 in {city}"


def agent(**fields: Any) -> Agent[Any]:
    settings = ModelSettings(max_tokens=400, tool_choice=fields.pop("tool_choice", None))
    return Agent(
        "Finder", instructions="Find rooms.", model=MODEL, model_settings=settings, **fields
    )


@act
async def by_responses() -> None:
    # docs
    from agents import Agent, ModelSettings, Runner, set_default_openai_client, set_tracing_disabled
    from openai import AsyncOpenAI

    set_default_openai_client(AsyncOpenAI(base_url=f"{SLUICE}/v1", api_key=KEY))
    set_tracing_disabled(True)  # Else it sends its traces to OpenAI.
    helper = Agent("Helper", model=MODEL, model_settings=ModelSettings(max_tokens=32))
    print((await Runner.run(helper, "What is a hold?")).final_output)
    # end


@act
async def responses_streamed() -> None:
    run = Runner.run_streamed(agent(), "Find a room.")
    assert [each.type async for each in run.stream_events()]


@act
async def responses_tool() -> None:
    """The tool is called once, then the choice is free again."""
    run = await Runner.run(agent(tools=[find], tool_choice="required"), "Find a room.")
    assert any(each.type == "tool_call_output_item" for each in run.new_items)


@act
async def responses_output() -> None:
    run = await Runner.run(agent(output_type=Room), "Find a room.")
    assert isinstance(run.final_output, Room)


@act
async def by_chat() -> None:
    set_default_openai_api("chat_completions")
    run = await Runner.run(agent(tools=[find], tool_choice="required"), "Find a room.")
    assert any(each.type == "tool_call_output_item" for each in run.new_items)


@act
async def chat_output() -> None:
    run = await Runner.run(agent(output_type=Room), "Find a room.")
    assert isinstance(run.final_output, Room)


report()
