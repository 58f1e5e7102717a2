"""P4, its first half: `max_tokens` is enforced; every model has a default and a ceiling."""

from __future__ import annotations

import pytest

from tests.support.fleet import MODEL
from tests.support.serving import Serving


@pytest.mark.parametrize("tokens", [1, 6, 1024])
async def test_an_answer_is_as_long_as_asked(serving: Serving, tokens: int) -> None:
    answer = await serving.chat(max_tokens=tokens)
    assert answer.json()["usage"]["completion_tokens"] == tokens
    assert answer.json()["choices"][0]["finish_reason"] == "length"


async def test_default_of_the_model(serving: Serving) -> None:
    model = serving.under_test.keys.current.models[MODEL]
    answer = await serving.chat(max_tokens=None)
    assert answer.json()["usage"]["completion_tokens"] == model.output_tokens_default


async def test_ceiling_of_the_model(serving: Serving) -> None:
    model = serving.under_test.keys.current.models[MODEL]
    answer = await serving.chat(max_tokens=model.output_tokens_max + 1)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "max_tokens"
    assert str(model.output_tokens_max) in answer.json()["error"]["message"]
