"""Tokenizers of every kind, with added tokens of every kind, for tests of what is cut."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEXTS = [
    "Two rooms near you, ",
    "naïve café 東京 ﬁne Ⅷ ",
    "a  b\n\nc_d 12 <|x ",
    "▁<s> [A] ok ",
] * 20
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
# Some hold each other, reach into each other, begin with blanks or letters, or are one character.
CONTENTS = (
    "<|a|>", "<|b|>", "<|a|><", "|><|", "<s>", "[A]", "_u_", "word", " <p>", "<q> ", "\n\n", "!",
    "é|", "Case>",
)  # fmt: skip
NORMALIZERS: tuple[Any, ...] = (
    None,
    normalizers.NFKC(),
    normalizers.Lowercase(),
    normalizers.Prepend("▁"),
    normalizers.Strip(),
    normalizers.Replace(" ", "▁"),
    normalizers.BertNormalizer(),
    normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
    normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Nmt()]),
)
PRE_TOKENIZERS: tuple[Any, ...] = (
    None,
    *(pre_tokenizers.ByteLevel(add_prefix_space=first) for first in (False, True)),
    *(
        pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
        for scheme, split in product(("always", "first", "never"), (False, True))
    ),
    pre_tokenizers.Whitespace(),
    pre_tokenizers.BertPreTokenizer(),
    pre_tokenizers.UnicodeScripts(),
    pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Split(Regex(r"\s?\w+|\s+$|^\W"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
)
POST_PROCESSORS: tuple[Any, ...] = (
    None,
    processors.ByteLevel(),
    processors.TemplateProcessing("<s> $A </s>", None, [("<s>", 1), ("</s>", 2)]),
    processors.BertProcessing(("<s>", 1), ("</s>", 2)),
    processors.RobertaProcessing(("<s>", 1), ("</s>", 2)),
    processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing("$A", None, [])]),
)


def _trained(model: Any, trainer: Any) -> Any:
    tokenizer = Tokenizer(model)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer.model


_BYTES = pre_tokenizers.ByteLevel.alphabet()
MODELS: tuple[Any, ...] = (
    _trained(
        models.BPE(),
        trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=_BYTES),
    ),
    _trained(
        models.BPE(unk_token="?", fuse_unk=True),
        trainers.BpeTrainer(vocab_size=150, show_progress=False, special_tokens=["?"]),
    ),
    _trained(
        models.Unigram(),
        trainers.UnigramTrainer(
            vocab_size=120, show_progress=False, special_tokens=["?"], unk_token="?"
        ),
    ),
    models.WordLevel({"?": 0, "Two": 1, "rooms": 2, "a": 3}, unk_token="?"),
    models.WordPiece({"?": 0, "Two": 1, "room": 2, "##s": 3, "a": 4, "b": 5}, unk_token="?"),
)
added_tokens = st.lists(
    st.builds(
        lambda content, flags: AddedToken(content, **dict(zip(FLAGS, flags, strict=True))),
        st.sampled_from(CONTENTS),
        st.one_of(
            st.just((False, False, False, False, True)), st.tuples(*[st.booleans()] * len(FLAGS))
        ),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda token: token.content,
)
texts = st.lists(
    st.one_of(
        st.sampled_from(CONTENTS),
        st.sampled_from(
            [" ", "  ", "\n", "_", "a", "Two rooms", "case>", "ﬁ", "東京", "▁", "<|", "|>"]
        ),
        st.text(max_size=3),
    ),
    max_size=14,
).map("".join)


@st.composite
def tokenizers(draw: st.DrawFn) -> Tokenizer:
    made = Tokenizer(draw(st.sampled_from(MODELS)))
    for name, kinds in (
        ("normalizer", NORMALIZERS),
        ("pre_tokenizer", PRE_TOKENIZERS),
        ("post_processor", POST_PROCESSORS),
    ):
        kind = draw(st.sampled_from(kinds))
        if kind is not None:
            setattr(made, name, kind)
    added = draw(added_tokens)
    # The library panics where one token takes the blanks with which another begins, and on a name
    # of which nothing is left.
    blank = any(token.content[0].isspace() for token in added)
    assume(not (blank and any(token.rstrip for token in added)))
    for token in added:
        normalizer = made.normalizer if token.normalized else None
        assume(normalizer is None or normalizer.normalize_str(token.content))
    made.add_tokens(added)
    return made
