"""A prompt is cut only where the pieces have the ids of the whole, and kept within bounds."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, processors

from inference.contract.assets import ASSET_FILES
from inference.text import pieces
from inference.text.model_text import MARK, ModelText
from inference.text.pieces import CALL_CHARS, Draft, PieceCache, cut_names
from inference.text.templates import ChatTemplates
from tests.inference.text.cuttable import MODELS, texts, tokenizers
from tests.inference.text.tiny import SPECIAL, tiny_tokenizer
from tests.support.shipped import SHIPPED

NO_TEMPLATES = ChatTemplates(None, None)
TALK = "<|bos|><|user|>room 12<|end|><|assistant|>two nights<|end|><|user|>"


def encoded(text: ModelText, prompt: str, owner: bytes = b"one") -> list[int]:
    draft = text.draft(prompt, add_special=False, owner=owner)
    draft.encode()
    return draft.ids()


def whole(tokenizer: Tokenizer, prompt: str) -> list[int]:
    ids: list[int] = tokenizer.encode(prompt, add_special_tokens=False).ids
    return ids


@given(tokenizers(), st.lists(texts, min_size=1, max_size=4))
def test_ids_are_those_of_the_whole_text(tokenizer: Tokenizer, prompts: list[str]) -> None:
    text = ModelText(tokenizer, NO_TEMPLATES)
    for prompt in [*prompts, *prompts]:
        assert encoded(text, prompt) == whole(tokenizer, prompt)


@pytest.fixture(scope="module")
def shipped() -> ModelText:
    return ModelText.from_files({name: (SHIPPED / name).read_bytes() for name in ASSET_FILES})


@given(
    prompt=st.lists(
        st.one_of(
            st.sampled_from(["<|bos|>", "<|user|>", "<|assistant|>", "<|end|>", "<|", "|>", MARK]),
            st.sampled_from(["Two rooms", " ", "\n", "12 345", "東京", "<|user|> <|"]),
            st.text(max_size=8),
        )
    ).map("".join)
)
def test_also_by_the_shipped_tokenizer(shipped: ModelText, prompt: str) -> None:
    assert encoded(shipped, prompt) == shipped.encode(prompt, add_special=False)


def _plain(*names: str, **flags: bool) -> list[AddedToken]:
    return [AddedToken(name, normalized=False, **flags) for name in names]


@pytest.mark.parametrize(
    ("added", "left", "right"),
    [
        # A token before it that reaches into it, or holds it.
        (_plain("><", "<b>"), "x>", "<b>"),
        (_plain("<a>", "x<a>"), "x", "<a>"),
        # One that takes what is before it, or asks what that is.
        (_plain("<a>", lstrip=True), "x ", "<a>"),
        (_plain("<a>", single_word=True), "x", "<a>"),
        # One that another takes for the rest of a word.
        ([*_plain("foo", single_word=True), *_plain("bar")], "foo", "bar"),
        ([*_plain("foo", single_word=True), *_plain("_bar")], "foo", "_bar"),
        # One that is looked for when a text has been normalized as a whole.
        ([AddedToken("<a>", normalized=True)], "x", "<a>"),
    ],
)
def test_no_cut_where_it_would_change_ids(added: list[AddedToken], left: str, right: str) -> None:
    tokenizer = Tokenizer(MODELS[0])
    tokenizer.normalizer = normalizers.Prepend("z")
    tokenizer.add_tokens(added)
    expected = whole(tokenizer, left + right)
    assert whole(tokenizer, left) + whole(tokenizer, right) != expected
    assert right not in cut_names(tokenizer)
    assert encoded(ModelText(tokenizer, NO_TEMPLATES), left + right) == expected


def _twice() -> Tokenizer:
    tokenizer = tiny_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing("$A $A", None, [])
    return tokenizer


def _sampling() -> Tokenizer:
    tokenizer = tiny_tokenizer()
    tokenizer.model = models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], dropout=0.5)
    return tokenizer


@pytest.mark.parametrize("make", [_twice, _sampling])
def test_a_tokenizer_that_does_not_fit_is_not_cut(make: Any) -> None:
    cache = PieceCache()
    text = ModelText(make(), NO_TEMPLATES, cache)
    assert cut_names(tiny_tokenizer()) and cut_names(make()) == {}
    assert encoded(text, "<|user|>") == whole(make(), "<|user|>")
    assert (cache.hits, cache.misses, cache.size_bytes) == (0, 0, 0)


def test_steps_that_nobody_has_read_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_STEPS", pieces._STEPS - {"ByteLevel"})
    assert cut_names(tiny_tokenizer()) == {}


def test_more_names_than_the_bound_leave_the_special_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "NAMES_MAX", len(SPECIAL))
    tokenizer = Tokenizer(MODELS[0])
    tokenizer.add_tokens(_plain("<0>", "<1>"))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    assert list(cut_names(tokenizer)) == SPECIAL


def test_the_end_of_a_text_with_many_places_is_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CUTS_MAX", 3)
    cache = PieceCache()
    text = ModelText(tiny_tokenizer(), NO_TEMPLATES, cache)
    assert encoded(text, TALK) == whole(tiny_tokenizer(), TALK)
    assert cache.misses == 1 + len(["<|end|><|assistant|>two nights<|end|><|user|>"])


def test_many_short_pieces_count_for_more_than_their_text() -> None:
    """Each is a call of its own: who decides about a thread must see that."""
    few = Draft([()], [(0, (b"", "<s>", "a" * 97))], lambda text: ())
    many = Draft([()] * 25, [(place, (b"", "<s>", "a")) for place in range(25)], lambda text: ())
    assert few.chars == 100 + CALL_CHARS
    assert many.chars == 25 * (4 + CALL_CHARS)


def test_a_talk_that_goes_on_is_found() -> None:
    cache = PieceCache()
    text = ModelText(tiny_tokenizer(), NO_TEMPLATES, cache)
    first = encoded(text, TALK)
    assert (cache.hits, cache.misses) == (0, 2)
    longer = encoded(text, f"{TALK}and then?<|end|>")
    assert longer[: len(first)] == first and (cache.hits, cache.misses) == (2, 3)
    longer.clear()
    assert encoded(text, TALK) == first and (cache.hits, cache.misses) == (4, 3)


def test_what_others_had_encoded_is_not_found() -> None:
    cache = PieceCache()
    text = ModelText(tiny_tokenizer(), NO_TEMPLATES, cache)
    encoded(text, TALK, b"one")
    encoded(text, TALK, b"two")
    assert (cache.hits, cache.misses) == (0, 4)
    ordinary = Tokenizer(MODELS[0])
    ordinary.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    other = ModelText(ordinary, NO_TEMPLATES, cache)
    assert encoded(other, TALK, b"one") == whole(ordinary, TALK) and cache.hits == 0


def test_what_is_not_used_goes_first() -> None:
    cache = PieceCache(pieces_max=2)
    keys = [(b"", "<a>", letter) for letter in "abc"]
    for key in keys[:2]:
        cache.put(key, (1,))
    assert cache.get(keys[0]) == (1,)
    cache.put(keys[2], (3,))
    assert [cache.get(key) for key in keys] == [(1,), None, (3,)]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=40))
def test_the_bound_of_bytes_holds(puts: list[tuple[int, int]]) -> None:
    bytes_max = 3_000
    cache = PieceCache(bytes_max=bytes_max)
    for number, length in puts:
        cache.put((b"", str(number), "x" * length), (7,) * length)
        assert 0 <= cache.size_bytes <= bytes_max
    kept = [cache.get((b"", str(number), "x" * length)) for number, length in set(puts)]
    assert (cache.size_bytes == 0) == (not any(ids is not None for ids in kept))


def test_a_very_long_piece_is_not_kept() -> None:
    cache = PieceCache()
    cache.put((b"", "", "x" * (pieces.PIECE_CHARS_MAX + 1)), (1,))
    assert cache.size_bytes == 0


def test_bytes_are_counted_as_they_are() -> None:
    """What the interpreter says it took, of texts and ids that nobody else holds."""
    cache = PieceCache()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(3_000):
            key = str(number).encode(), f"<{number}>", f"{number} " * 20
            cache.put(key, tuple(range(1_000 * number + 300, 1_000 * number + 340)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 1.1 < cache.size_bytes < 2 * (after - before)
