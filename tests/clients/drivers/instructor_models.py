"""Instructor: answers as Pydantic models, in its modes for tools, JSON and partial streams."""

from __future__ import annotations

from typing import Any, Literal

import instructor
from openai import OpenAI
from pydantic import BaseModel
from session import KEY, MODEL, SLUICE, act, report

ASKED: Any = [{"role": "user", "content": "Find a room."}]


class Room(BaseModel, extra="forbid"):
    """A structured answer; closed, or a small model would go on with keys of its own."""

    city: Literal["Rome", "Oslo"]
    floor: Literal[1, 2]


@act
def by_tools() -> None:
    # docs
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class Hold(BaseModel, extra="forbid"):  # Else a small model goes on with keys of its own.
        seconds: int
        open: bool

    client = instructor.from_openai(OpenAI(base_url=f"{SLUICE}/v1", api_key=KEY))
    hold = client.chat.completions.create(
        model=MODEL,
        response_model=Hold,
        messages=[{"role": "user", "content": "What is a hold?"}],
        max_tokens=100,
    )
    # end
    assert isinstance(hold, Hold)


def made(mode: instructor.Mode) -> Any:
    """A client of a mode."""
    return instructor.from_openai(OpenAI(base_url=f"{SLUICE}/v1", api_key=KEY), mode=mode)


@act
def by_strict_tools() -> None:
    answer = made(instructor.Mode.TOOLS_STRICT).chat.completions.create(
        model=MODEL, response_model=Room, messages=ASKED, max_tokens=100, max_retries=1
    )
    assert isinstance(answer, Room)


@act
def by_schema() -> None:
    answer = made(instructor.Mode.JSON_SCHEMA).chat.completions.create(
        model=MODEL, response_model=Room, messages=ASKED, max_tokens=200, max_retries=1
    )
    assert isinstance(answer, Room)


@act
def partial() -> None:
    parts = list(
        made(instructor.Mode.TOOLS).chat.completions.create(
            model=MODEL, response_model=instructor.Partial[Room], messages=ASKED, max_tokens=100,
            stream=True,
        )
    )  # fmt: skip
    assert parts[-1].city in ("Rome", "Oslo")


@act
def by_responses() -> None:
    answer = made(instructor.Mode.RESPONSES_TOOLS).create(
        model=MODEL, response_model=Room, messages=ASKED, max_tokens=100, max_retries=1
    )
    assert isinstance(answer, Room)


report()
