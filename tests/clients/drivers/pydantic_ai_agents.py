"""Pydantic AI: runs, streams, tools and typed output, by chat, Responses and messages."""

from __future__ import annotations

from typing import Any, Literal

from anthropic import AsyncAnthropic
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput, UsageLimits
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from session import KEY, MODEL, SLUICE, act, report

SHORT: Any = {"max_tokens": 100}
MANY = UsageLimits(request_limit=8)


class Room(BaseModel):
    """A structured answer."""

    city: Literal["Rome", "Oslo"]
    floor: Literal[1, 2]


def chat_model() -> OpenAIChatModel:
    return OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{SLUICE}/v1", api_key=KEY))


@act
def chat() -> None:
    # docs
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{SLUICE}/v1", api_key=KEY)
    agent = Agent(OpenAIChatModel(MODEL, provider=provider), model_settings={"max_tokens": 32})
    print(agent.run_sync("What is a hold?").output)
    # end


@act
async def streamed() -> None:
    async with Agent(chat_model(), model_settings=SHORT).run_stream("hi") as run:
        assert await run.get_output()


@act
def native_output() -> None:
    agent = Agent(chat_model(), output_type=NativeOutput(Room), model_settings=SHORT)
    assert isinstance(agent.run_sync("Find a room.").output, Room)


@act
def tool_output() -> None:
    agent = Agent(chat_model(), output_type=ToolOutput(Room), model_settings=SHORT)
    assert isinstance(agent.run_sync("Find a room.").output, Room)


@act
def tools_and_output() -> None:
    """Each answer is a call: of the tool, or of the output that ends the run."""
    agent = Agent(chat_model(), output_type=ToolOutput(Room), model_settings=SHORT)

    @agent.tool_plain
    def find(city: Literal["Rome", "Oslo"]) -> str:
        """Find a room."""
        return f"Room 7 in {city}"

    assert isinstance(agent.run_sync("Find a room.", usage_limits=MANY).output, Room)


@act
def thinking() -> None:
    settings: Any = {**SHORT, "openai_reasoning_effort": "low"}
    assert Agent(chat_model(), model_settings=settings).run_sync("hi").output


@act
def responses() -> None:
    provider = OpenAIProvider(base_url=f"{SLUICE}/v1", api_key=KEY)
    agent = Agent(OpenAIResponsesModel(MODEL, provider=provider), model_settings=SHORT)
    run = agent.run_sync("hi")
    assert run.output and run.usage.output_tokens > 0


@act
def messages() -> None:
    provider = AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=SLUICE, api_key=KEY))
    agent = Agent(AnthropicModel(MODEL, provider=provider), model_settings=SHORT)
    run = agent.run_sync("hi")
    assert run.output and run.usage.output_tokens > 0


report()
