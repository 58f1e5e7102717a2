"""The official Python client where it is refused: each error has its own class."""

from __future__ import annotations

import openai
from session import KEY, MODEL, SLUICE, act, report


def caught(kind: type[openai.APIStatusError], key: str = KEY, **fields: object) -> openai.APIError:
    """The error of one chat, which has to be of this class."""
    client = openai.OpenAI(base_url=f"{SLUICE}/v1", api_key=key, max_retries=0)
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}
    try:
        client.chat.completions.create(**asked)
    except kind as error:
        return error
    raise AssertionError("not refused")


@act
def wrong_key() -> None:
    error = caught(openai.AuthenticationError, key="sk_sluice_wrong")
    assert error.code == "invalid_api_key" and "Incorrect API key provided" in error.message


@act
def wrong_model() -> None:
    assert caught(openai.NotFoundError, model="none").code == "model_not_found"


@act
def wrong_field() -> None:
    assert caught(openai.BadRequestError, temperature=9).param == "temperature"


report()
