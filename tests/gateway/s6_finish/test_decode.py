"""Any text cut into any tokens: the parts that a client gets join to the decoding of them all."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from inference.text.decode import TokenDecoder


@cache
def byte_tokenizer() -> Tokenizer:
    """One token per byte, and one special token that decodes to nothing."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    return tokenizer


@st.composite
def split_tokens(draw: st.DrawFn) -> list[list[int]]:
    """Token ids, some of them no text at all, cut at random."""
    text = draw(st.text(max_size=24))
    ids: list[int] = byte_tokenizer().encode(text).ids
    for _ in range(draw(st.integers(0, 4))):
        ids.insert(draw(st.integers(0, len(ids))), draw(st.integers(0, 256)))
    cuts = sorted(draw(st.lists(st.integers(0, len(ids)), max_size=8)))
    bounds = [0, *cuts, len(ids)]
    return [ids[low:high] for low, high in zip(bounds, bounds[1:], strict=False)]


@given(split_tokens())
def test_parts_join_to_the_whole(parts: list[list[int]]) -> None:
    tokenizer = byte_tokenizer()
    decoder = TokenDecoder(tokenizer)
    joined = "".join(decoder.feed(part) for part in parts) + decoder.close()
    assert joined == tokenizer.decode(sum(parts, []), skip_special_tokens=True)


@given(st.text(max_size=40))
def test_no_character_is_shown_in_part(text: str) -> None:
    decoder = TokenDecoder(byte_tokenizer())
    shown = "".join(decoder.feed([token]) for token in byte_tokenizer().encode(text).ids)
    assert shown + decoder.close() == text


def test_end_inside_a_character_shows_a_replacement() -> None:
    decoder = TokenDecoder(byte_tokenizer())
    ids = byte_tokenizer().encode("ab€").ids
    assert decoder.feed(ids[:-1]) == "ab"
    assert decoder.close() == "\N{REPLACEMENT CHARACTER}"
