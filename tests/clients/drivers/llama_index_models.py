"""LlamaIndex's OpenAI-like classes: chat, stream, tools, structured answers, embeddings, agent."""

from typing import Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from session import EMBEDDER, KEY, MODEL, SLUICE, act, report

ASKED = [ChatMessage(role="user", content="Find a room.")]


class Room(BaseModel):
    """A structured answer."""

    city: Literal["Rome", "Oslo"]
    floor: Literal[1, 2]


def find(city: Literal["Rome", "Oslo"]) -> str:
    """Find a room."""
    return f"Room 7 in {city}"


@act
def chat() -> None:
    # docs
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(
        api_base=f"{SLUICE}/v1",
        api_key=KEY,
        model=MODEL,
        is_chat_model=True,
        is_function_calling_model=True,
        max_tokens=32,
    )
    print(model.chat([ChatMessage(role="user", content="What is a hold?")]))
    # end


def model(tokens: int = 100) -> OpenAILike:
    """A chat model of few tokens."""
    return OpenAILike(
        api_base=f"{SLUICE}/v1", api_key=KEY, model=MODEL, max_tokens=tokens,
        is_chat_model=True, is_function_calling_model=True, should_use_structured_outputs=True,
    )  # fmt: skip


@act
def streamed() -> None:
    assert "".join(each.delta or "" for each in model(16).stream_chat(ASKED))


@act
def tools() -> None:
    made = FunctionTool.from_defaults(find)
    answer = model().chat_with_tools([made], user_msg="Find a room.", tool_required=True)
    calls = model().get_tool_calls_from_response(answer)
    assert calls[0].tool_name == "find"


@act
def structured() -> None:
    answer = model().as_structured_llm(Room).chat(ASKED)
    assert isinstance(answer.raw, Room)


@act
async def agent() -> None:
    from llama_index.core.agent.workflow import FunctionAgent

    made = FunctionAgent(tools=[find], llm=model(16), system_prompt="Find rooms.")
    assert await made.run("Find a room.", max_iterations=3, early_stopping_method="generate")


@act
def embeddings() -> None:
    # docs
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding

    embedder = OpenAILikeEmbedding(api_base=f"{SLUICE}/v1", api_key=KEY, model_name=EMBEDDER)
    vectors = embedder.get_text_embedding_batch(["one", "two"])
    # end
    assert len(vectors) == 2 and len(vectors[0]) > 100


report()
