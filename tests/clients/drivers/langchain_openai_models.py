"""LangChain's OpenAI models and LangGraph's agent."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from session import EMBEDDER, KEY, MODEL, SLUICE, act, report


class Room(BaseModel, extra="forbid"):
    """A structured answer; closed, or a small model would go on with keys of its own."""

    city: Literal["Rome", "Oslo"]
    floor: Literal[1, 2]


@tool
def find(city: Literal["Rome", "Oslo"]) -> str:
    """Find a room."""
    return f"Room 7 in {city}"


@act
def chat() -> None:
    # docs
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(base_url=f"{SLUICE}/v1", api_key=KEY, model=MODEL, max_tokens=32)
    print(model.invoke("What is a hold?").content)
    # end


def model(**fields: Any) -> ChatOpenAI:
    """A chat model of few tokens."""
    told = {"model": MODEL, "max_tokens": 400, **fields}
    return ChatOpenAI(base_url=f"{SLUICE}/v1", api_key=KEY, **told)


@act
def counted() -> None:
    assert model().invoke("hi").usage_metadata["output_tokens"] > 0


@act
def streamed() -> None:
    whole = None
    for chunk in model(stream_usage=True).stream("hi"):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None and whole.usage_metadata["output_tokens"] > 0


@act
def batch() -> None:
    assert len(model(max_tokens=8).batch(["one", "two", "three"])) == 3


@act
def tools() -> None:
    asked = model().bind_tools([find], tool_choice="find").invoke("Find a room.")
    assert asked.tool_calls[0]["name"] == "find"


@act
def structured() -> None:
    for method in ("json_schema", "function_calling"):
        answer = model().with_structured_output(Room, method=method).invoke("Find a room.")
        assert isinstance(answer, Room), method


@act
def agent() -> None:
    """One forced call, its result, and what the model makes of it."""
    from langchain_core.messages import HumanMessage, ToolMessage

    asked = HumanMessage("Find a room.")
    call = model().bind_tools([find], tool_choice="required").invoke([asked])
    results = [find.invoke(each) for each in call.tool_calls]
    assert isinstance(results[0], ToolMessage)
    last = model().bind_tools([find], tool_choice="none").invoke([asked, call, *results])
    assert not last.tool_calls


@act
def graph() -> None:
    from langgraph.prebuilt import create_react_agent

    made = create_react_agent(model(), [find])
    seen = made.invoke({"messages": [("user", "Find a room.")]}, {"recursion_limit": 25})
    assert seen["messages"][1].type == "ai"


@act
def responses() -> None:
    answer = model(use_responses_api=True).invoke("hi")
    assert answer.usage_metadata["output_tokens"] > 0


@act
def embeddings() -> None:
    # docs
    from langchain_openai import OpenAIEmbeddings

    embedder = OpenAIEmbeddings(
        base_url=f"{SLUICE}/v1",
        api_key=KEY,
        model=EMBEDDER,
        check_embedding_ctx_length=False,  # Else it sends token ids of another vocabulary.
    )
    vectors = embedder.embed_documents(["one", "two"])
    # end
    assert len(vectors) == 2 and len(vectors[0]) > 100


report()
