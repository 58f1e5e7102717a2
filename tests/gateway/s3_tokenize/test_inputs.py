"""Inputs to embed: encoded by portions, and refused before more of them are encoded."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.gateway.ask import Inputs
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import Refusal
from controlplane.gateway.s3_tokenize import tokenize
from controlplane.gateway.s3_tokenize.tokenize import encode_inputs
from inference.text.model_text import ModelText
from inference.text.templates import ChatTemplates
from tests.support.encoders import PIECES, make_tokenizer

WINDOW = 48


class CountingText(ModelText):
    """Remembers how many texts it was given at a time."""

    def __init__(self, **tokenizer: Any) -> None:
        made = make_tokenizer()
        for name, value in tokenizer.items():
            setattr(made, name, value)
        super().__init__(made, ChatTemplates(None, None))
        self.given: list[int] = []

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        self.given.append(len(texts))
        return super().encode_all(texts)


def make_inputs(*texts: str) -> Inputs:
    return Inputs(texts=texts, listed=True, base64=False, dimensions=None)


async def test_portions_are_put_together_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize, "PORTION_CHARS", 10)
    text = CountingText()
    texts = [
        letter * length for letter, length in zip("abcdefg", (1, 9, 3, 3, 12, 1, 2), strict=True)
    ]
    encoded = await encode_inputs(Call([]), make_inputs(*texts), text, window_tokens=WINDOW)
    assert text.given == [2, 3, 2]
    assert encoded == [make_tokenizer().encode(each).ids for each in texts]


async def test_nothing_is_encoded_behind_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize, "PORTION_CHARS", 10)
    text = CountingText()
    inputs = make_inputs("a" * 20, "b" * (WINDOW - 1), "c" * 20)
    with pytest.raises(Refusal) as refused:
        await encode_inputs(Call([]), inputs, text, window_tokens=WINDOW)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input[1]")
    assert text.given == [1, 1]


async def test_a_text_of_which_the_tokenizer_keeps_nothing_is_refused() -> None:
    text = CountingText(post_processor=None)
    with pytest.raises(Refusal, match="no tokens") as refused:
        await encode_inputs(Call([]), make_inputs("a", "  "), text, window_tokens=WINDOW)
    assert refused.value.param == "input[1]"


async def test_long_texts_leave_the_loop_to_others() -> None:
    texts = ["abc " * 10] * 100
    encoded = await encode_inputs(
        Call([]), make_inputs(*texts), CountingText(), window_tokens=WINDOW
    )
    assert [len(ids) for ids in encoded] == [32] * 100


async def test_ids_are_taken_as_they_are() -> None:
    inputs = Inputs(tokens=([5], [7, len(PIECES) - 1]), listed=True, base64=False, dimensions=None)
    encoded = await encode_inputs(Call([]), inputs, CountingText(), window_tokens=WINDOW)
    assert encoded == [[5], [7, len(PIECES) - 1]]
