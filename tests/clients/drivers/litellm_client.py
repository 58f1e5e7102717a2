"""LiteLLM as a client: chat, stream, tools, formats, embeddings, Responses, messages, errors."""

from __future__ import annotations

from typing import Any, Literal

import litellm
from pydantic import BaseModel
from session import EMBEDDER, KEY, MODEL, SLUICE, act, report

ASKED: Any = [{"role": "user", "content": "Find a room."}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "find", "parameters": PARAMETERS}}
WHERE: Any = {"api_base": f"{SLUICE}/v1", "api_key": KEY}


class Room(BaseModel):
    """A structured answer."""

    city: Literal["Rome", "Oslo"]
    floor: Literal[1, 2]


@act
def chat() -> None:
    # docs
    import litellm

    answer = litellm.completion(
        model=f"openai/{MODEL}",
        api_base=f"{SLUICE}/v1",
        api_key=KEY,
        messages=[{"role": "user", "content": "What is a hold?"}],
        max_tokens=32,
    )
    print(answer.choices[0].message.content)
    # end
    assert answer.usage.completion_tokens > 0


def completion(messages: Any = ASKED, **fields: Any) -> Any:
    """One of few tokens."""
    return litellm.completion(
        model=f"openai/{MODEL}", messages=messages, **{"max_tokens": 400, **WHERE, **fields}
    )


@act
def streamed() -> None:
    chunks = list(completion(stream=True, stream_options={"include_usage": True}))
    assert any(getattr(each, "usage", None) for each in chunks)


@act
def history_as_it_came() -> None:
    first = completion(max_tokens=8).choices[0].message.model_dump()
    completion([*ASKED, first, {"role": "user", "content": "And in Oslo?"}], max_tokens=8)


@act
def tools() -> None:
    answer = completion(tools=[TOOL], tool_choice="required")
    assert answer.choices[0].message.tool_calls[0].function.name == "find"


@act
def structured() -> None:
    answer = completion(response_format=Room)
    assert Room.model_validate_json(answer.choices[0].message.content)


@act
def effort() -> None:
    assert completion(reasoning_effort="low", allowed_openai_params=["reasoning_effort"])


@act
def embeddings() -> None:
    made = litellm.embedding(model=f"openai/{EMBEDDER}", input=["one", "two"], **WHERE)
    assert len(made.data) == 2


@act
def responses() -> None:
    made = litellm.responses(
        model=f"openai/{MODEL}", input="What is a hold?", max_output_tokens=16, **WHERE
    )
    assert made.usage.output_tokens > 0


@act
def messages() -> None:
    made = litellm.completion(
        model=f"anthropic/{MODEL}", messages=ASKED, max_tokens=16, api_base=SLUICE, api_key=KEY
    )
    assert made.usage.completion_tokens > 0


@act
def wrong_key() -> None:
    try:
        completion(api_key="sk_sluice_wrong", num_retries=0)
    except litellm.AuthenticationError:
        return
    raise AssertionError("not refused")


report()
