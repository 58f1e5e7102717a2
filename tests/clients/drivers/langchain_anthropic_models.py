"""LangChain's Anthropic model against `/v1/messages`."""

from __future__ import annotations

from typing import Any, Literal

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from session import KEY, MODEL, SLUICE, act, report


@tool
def find(city: Literal["Rome", "Oslo"]) -> str:
    """Find a room."""
    return f"Room 7 in {city}"


@act
def chat() -> None:
    # docs
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(base_url=SLUICE, api_key=KEY, model=MODEL, max_tokens=32)
    print(model.invoke("What is a hold?").content)
    # end


def model(**fields: Any) -> ChatAnthropic:
    """A chat model of few tokens."""
    return ChatAnthropic(base_url=SLUICE, api_key=KEY, model=MODEL, max_tokens=100, **fields)


@act
def streamed() -> None:
    whole = None
    for chunk in model().stream("hi"):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None and whole.usage_metadata["output_tokens"] > 0


@act
def agent() -> None:
    """One forced call, its result, and what the model makes of it."""
    from langchain_core.messages import HumanMessage

    asked = HumanMessage("Find a room.")
    call = model().bind_tools([find], tool_choice="find").invoke([asked])
    results = [find.invoke(each) for each in call.tool_calls]
    assert call.tool_calls[0]["name"] == "find"
    last = model().bind_tools([find], tool_choice={"type": "none"}).invoke([asked, call, *results])
    assert last.usage_metadata["input_tokens"] > 0


report()
