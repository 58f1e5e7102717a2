"""Anthropic's Python client where it is refused: each error has its own class and shape."""

from __future__ import annotations

import anthropic
from session import KEY, MODEL, SLUICE, act, report


def caught(kind: type[anthropic.APIStatusError], key: str = KEY, **fields: object) -> str:
    """The type of the error of one message, which has to be of this class."""
    client = anthropic.Anthropic(base_url=SLUICE, api_key=key, max_retries=0)
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
    try:
        client.messages.create(**{**asked, **fields})
    except kind as error:
        assert error.body["type"] == "error"
        return str(error.body["error"]["type"])
    raise AssertionError("not refused")


@act
def wrong_key() -> None:
    assert caught(anthropic.AuthenticationError, key="sk_sluice_wrong") == "authentication_error"


@act
def wrong_model() -> None:
    assert caught(anthropic.NotFoundError, model="none") == "not_found_error"


@act
def wrong_field() -> None:
    assert (
        caught(anthropic.BadRequestError, extra_body={"temperature": 9}) == "invalid_request_error"
    )


report()
