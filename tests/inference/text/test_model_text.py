"""Tokenizer and template of one model, from the two files that a node sends."""

from __future__ import annotations

import pytest

from inference.contract.assets import CONFIG_FILE, TEMPLATE_FILE, TOKENIZER_FILE
from inference.text.chat import TemplateFailed
from inference.text.model_text import ModelText
from inference.text.templates import TextFilesBroken
from tests.inference.text.tiny import tiny_files, tiny_tokenizer


def test_render_then_encode_then_decode() -> None:
    text = ModelText.from_files(tiny_files())
    prompt = text.render([{"role": "user", "content": "room 12 in 東京"}])
    assert prompt == "<|user|>room 12 in 東京<|end|><|assistant|>"
    tokens = text.encode(prompt, add_special=False)
    assert tokens[0] == tiny_tokenizer().token_to_id("<|user|>")
    decoder = text.decoder()
    assert decoder.feed(tokens) + decoder.close() == "room 12 in 東京"


def test_token_bytes_join_to_the_text() -> None:
    text = ModelText.from_files(tiny_files())
    tokens = text.encode("naïve 𝄞", add_special=False)
    assert b"".join(text.token_text(token)[1] for token in tokens) == "naïve 𝄞".encode()
    assert text.token_text(10**6) == ("", b"")


def test_a_model_without_template_does_not_chat() -> None:
    text = ModelText.from_files(tiny_files(chat_template=None))
    assert not text.chats
    with pytest.raises(LookupError):
        text.render([])


@pytest.mark.parametrize(
    ("name", "content"),
    [(TOKENIZER_FILE, b"{}"), (TOKENIZER_FILE, b"\xff"), (CONFIG_FILE, b"["), (CONFIG_FILE, b"[]")],
)
def test_broken_files_are_named(name: str, content: bytes) -> None:
    with pytest.raises(TextFilesBroken, match=name):
        ModelText.from_files({**tiny_files(), name: content})


def test_a_broken_template_is_refused() -> None:
    with pytest.raises(TextFilesBroken, match="chat_template"):
        ModelText.from_files(tiny_files(chat_template=["a", "list"]))
    with pytest.raises(TextFilesBroken, match=TEMPLATE_FILE):
        ModelText.from_files({**tiny_files(), TEMPLATE_FILE: b"\xff"})
    with pytest.raises(TemplateFailed, match="chat_template"):
        ModelText.from_files(tiny_files(chat_template="{% if %}"))
