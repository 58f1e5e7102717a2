"""Decoding token by token gives the text of all tokens, and never half a character."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from inference.text.decode import TokenDecoder
from tests.inference.text.tiny import SPECIAL, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
REPLACEMENT = "\ufffd"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.integers(1, 7))
def test_parts_join_to_the_text(text: str, width: int) -> None:
    tokens = TOKENIZER.encode(text, add_special_tokens=False).ids
    decoder = TokenDecoder(TOKENIZER)
    parts = [decoder.feed(tokens[i : i + width]) for i in range(0, len(tokens), width)]
    assert "".join(parts) + decoder.close() == TOKENIZER.decode(tokens)
    if REPLACEMENT not in text:
        assert all(REPLACEMENT not in part for part in parts)


@given(st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=30))
def test_all_at_once_is_the_same_text(tokens: list[int]) -> None:
    decoder = TokenDecoder(TOKENIZER)
    assert TokenDecoder(TOKENIZER).whole(tokens) == decoder.feed(tokens) + decoder.close()


KEPT = {TOKENIZER.get_vocab()[name]: name for name in SPECIAL[:2]}


@given(st.text("a東<|endbos>𝄞 "), st.lists(st.sampled_from(sorted(KEPT))), st.integers(0, 20))
def test_special_tokens_that_are_kept(text: str, special: list[int], place: int) -> None:
    tokens = TOKENIZER.encode(text, add_special_tokens=False).ids
    mixed = [*tokens[:place], *special, *tokens[place:]]
    decoder = TokenDecoder(TOKENIZER, KEPT)
    parts = "".join(decoder.feed([token]) for token in mixed) + decoder.close()
    assert parts == decoder.whole(mixed)
    names = "".join(KEPT[token] for token in special)
    assert names in parts
    head, tail = TOKENIZER.decode(tokens[:place]), TOKENIZER.decode(tokens[place:])
    if REPLACEMENT not in head:
        assert parts == head + names + tail


def test_a_cut_character_waits() -> None:
    tokens = TOKENIZER.encode("𝄞", add_special_tokens=False).ids
    assert len(tokens) > 1
    decoder = TokenDecoder(TOKENIZER)
    assert [decoder.feed([token]) for token in tokens] == [""] * (len(tokens) - 1) + ["𝄞"]
    assert decoder.close() == ""


def test_an_end_in_the_middle_of_a_character_is_shown() -> None:
    tokens = TOKENIZER.encode("a𝄞", add_special_tokens=False).ids
    decoder = TokenDecoder(TOKENIZER)
    assert decoder.feed(tokens[:-1]) == "a"
    rest = decoder.close()
    assert rest
    assert set(rest) == {REPLACEMENT}


@pytest.mark.parametrize("special", SPECIAL)
def test_special_tokens_are_silent(special: str) -> None:
    (number,) = TOKENIZER.encode(special, add_special_tokens=False).ids
    words = TOKENIZER.encode("two nights", add_special_tokens=False).ids
    decoder = TokenDecoder(TOKENIZER)
    parts = [decoder.feed([token]) for token in (number, *words[:1], number, *words[1:], number)]
    assert "".join(parts) + decoder.close() == "two nights"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=40))
def test_any_tokens_at_all(tokens: list[int]) -> None:
    """A sampled text need not be valid UTF-8; nothing valid may be lost or garbled by it."""
    decoder = TokenDecoder(TOKENIZER)
    text = decoder.feed(tokens) + decoder.close()
    whole = TOKENIZER.decode(tokens)
    assert text.replace(REPLACEMENT, "") == whole.replace(REPLACEMENT, "")


def test_a_decoder_that_was_closed_begins_anew() -> None:
    tokens = TOKENIZER.encode("a𝄞", add_special_tokens=False).ids
    decoder = TokenDecoder(TOKENIZER)
    decoder.feed(tokens[:-1])
    decoder.close()
    assert decoder.feed(tokens) + decoder.close() == "a𝄞"
