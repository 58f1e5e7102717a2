"""The tokenizer: any text comes back unchanged, and turns encode as the chat template says."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from inference.train.data.compose import PLAIN, training_stream
from inference.train.tokenizer import (
    BOS,
    CHAT_TEMPLATE,
    SPECIAL_TOKENS,
    Encoder,
    special_id,
    train_tokenizer,
)

VOCAB_SIZE = 600


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(1, vocab_size=VOCAB_SIZE, dialogues=300)


@given(text=st.text())
def test_any_text_round_trips(tokenizer: Tokenizer, text: str) -> None:
    for token in SPECIAL_TOKENS:
        text = text.replace(token, "")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_the_same_text_trains_the_same_tokenizer(tokenizer: Tokenizer) -> None:
    again = train_tokenizer(1, vocab_size=VOCAB_SIZE, dialogues=300)
    assert again.to_str() == tokenizer.to_str()


def test_special_tokens_are_single_ids(tokenizer: Tokenizer) -> None:
    for token in SPECIAL_TOKENS:
        assert tokenizer.encode(token).ids == [special_id(tokenizer, token)]


def test_a_missing_special_token_is_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"<\|tool\|>"):
        special_id(tokenizer, "<|tool|>")


def test_encoder_agrees_with_the_chat_template(tokenizer: Tokenizer) -> None:
    encoder = Encoder(tokenizer)
    template = ImmutableSandboxedEnvironment().from_string(CHAT_TEMPLATE)
    for dialogue in islice(training_stream(2), 200):
        if dialogue.family == PLAIN:
            continue
        messages = [{"role": turn.role, "content": turn.text} for turn in dialogue.turns]
        text = template.render(messages=messages, bos_token=BOS)
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        assert encoder.encode(dialogue).ids == expected
        text = template.render(messages=messages[:-1], bos_token=BOS, add_generation_prompt=True)
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        assert encoder.prompt(dialogue) == expected


def test_only_answers_are_said(tokenizer: Tokenizer) -> None:
    encoder = Encoder(tokenizer)
    for dialogue in islice(training_stream(3), 100):
        encoded = encoder.encode(dialogue)
        said = [token for token, wanted in zip(encoded.ids, encoded.said, strict=True) if wanted]
        answers = [turn.text for turn in dialogue.turns if turn.role in {"assistant", "text"}]
        assert said.count(encoder.end) == len(answers)
        assert tokenizer.decode(said) == "".join(answers)
