"""Token ids of a prompt's pieces, kept: turns of a talk, system prompts and what is around them.

A prompt is cut where its tokenizer cuts it itself: before added tokens that it takes out of the
text before all else. Each segment between them is then normalized, split and encoded alone, so the
ids of the pieces are those of the whole. `cut_names` says what must hold for that.
"""

import json
import re
import string
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from sys import getsizeof
from typing import Any

import msgspec
from tokenizers import AddedToken, Tokenizer

BYTES_MAX = 32 * 1024 * 1024
PIECES_MAX = 16_384
# Of one piece: a few long ones must not push out all others.
PIECE_CHARS_MAX = 128 * 1024
# Longer texts are not cut, since looking for the places takes its time, too.
TEXT_CHARS_MAX = 512 * 1024
# Of a tokenizer's names those at which texts are cut, and places in one text, whose end is not cut.
NAMES_MAX = 256
CUTS_MAX = 1024
# A piece without its characters and ids: its key, its place in the table, heads of objects.
PIECE_BYTES = 400
ID_BYTES = 36
# What a call of the tokenizer costs beside its text, in characters of text.
CALL_CHARS = 32

# A name before which texts are cut begins so: no blank that the token before could take,
# nothing that makes it part of a word.
_BEGINS = frozenset(string.punctuation) - {"_"}
_MODELS = frozenset({"BPE", "Unigram", "WordLevel", "WordPiece"})
# Those that were read: each looks at one segment at a time. Metaspace asks, besides, whether it is
# the first of the text, and a piece that is not the first begins with a token.
_STEPS = frozenset({
    "BertNormalizer", "BertPreTokenizer", "BertProcessing", "ByteLevel", "CharDelimiterSplit",
    "Digits", "FixedLength", "Lowercase", "Metaspace", "NFC", "NFD", "NFKC", "NFKD", "Nmt",
    "Precompiled", "Prepend", "Punctuation", "Replace", "RobertaProcessing", "Sequence", "Split",
    "Strip", "StripAccents", "TemplateProcessing", "UnicodeScripts", "Whitespace",
    "WhitespaceSplit",
})  # fmt: skip

_SEQUENCES = ("normalizers", "pretokenizers", "processors")

Ids = Sequence[int]
# Whose it is and of which tokenizer, the token at its beginning and the text behind it.
Key = tuple[bytes, str, str]

_NUMBERS = count()


class PieceCache:
    """Ids by piece, the least recently used dropped beyond a bound; one for all tokenizers.

    For the event loop's thread alone.
    """

    def __init__(self, *, bytes_max: int = BYTES_MAX, pieces_max: int = PIECES_MAX) -> None:
        self._bytes_max = bytes_max
        self._pieces_max = pieces_max
        self._kept: OrderedDict[Key, Ids] = OrderedDict()
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: Key) -> Ids | None:
        ids = self._kept.get(key)
        if ids is None:
            self.misses += 1
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return ids

    def put(self, key: Key, ids: Ids) -> None:
        if key in self._kept or len(key[2]) > PIECE_CHARS_MAX:
            return
        self._kept[key] = ids
        self.size_bytes += _size(key, ids)
        while self.size_bytes > self._bytes_max or len(self._kept) > self._pieces_max:
            self.size_bytes -= _size(*self._kept.popitem(last=False))


class Draft(msgspec.Struct):
    """A text on its way to ids: `parts` that are known, and at which places what is missing."""

    parts: list[Ids]
    missing: list[tuple[int, Key]]
    encode_piece: Callable[[str], Ids]
    cache: PieceCache | None = None

    @property
    def chars(self) -> int:
        """Characters that are left to encode, and as many for each call as that takes besides."""
        left = [len(name) + len(behind) for _, (_, name, behind) in self.missing]
        return sum(left) + CALL_CHARS * len(left)

    def encode(self) -> None:
        """Make what is missing. Any thread may: it touches nothing that others see."""
        for place, (_, name, behind) in self.missing:
            self.parts[place] = self.encode_piece(name + behind)

    def ids(self) -> list[int]:
        """Of the whole text, when it is encoded; keeps what is new."""
        if self.cache is not None:
            for place, key in self.missing:
                self.cache.put(key, self.parts[place])
        return list(chain.from_iterable(self.parts))


class Cutter:
    """Cuts texts before the names of one tokenizer's tokens."""

    def __init__(self, ids: Mapping[str, int], encode: Callable[[str], Ids]) -> None:
        self._split = re.compile(f"({'|'.join(map(re.escape, ids))})").split
        self._encode = encode
        self._number = next(_NUMBERS).to_bytes(8)
        self._alone = {name: (token,) for name, token in ids.items()}

    def draft(self, texts: Sequence[str], cache: PieceCache, owner: bytes) -> Draft:
        """`texts` are encoded each by itself. No other `owner` learns what was looked up."""
        parts: list[Ids] = []
        missing: list[tuple[int, Key]] = []
        owner = self._number + owner
        for text in texts:
            # Before the first name there is none.
            pieces = iter(("", *self._split(text, CUTS_MAX)))
            for name, behind in zip(pieces, pieces, strict=True):
                if not behind:
                    parts.append(self._alone[name] if name else ())
                    continue
                key = owner, name, behind
                ids = cache.get(key)
                if ids is None:
                    missing.append((len(parts), key))
                parts.append(ids or ())
        return Draft(parts, missing, self._encode, cache)


def cut_names(tokenizer: Tokenizer) -> dict[str, int]:
    """Names before which any text may be cut, with their tokens; none where ids could change.

    A name is found wherever it is: no other name has it inside or reaches into it. All that looks
    at the text around a token stops at it, or is in the same piece.
    """
    model = tokenizer.model
    sampled = getattr(model, "dropout", None) or getattr(model, "alpha", None)
    steps = tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.post_processor
    told = [json.loads(step.__getstate__()) for step in steps if step is not None]
    if sampled or type(model).__name__ not in _MODELS or not all(map(_alone, told)):
        return {}
    added = sorted(tokenizer.get_added_tokens_decoder().items(), key=lambda pair: pair[0])
    found = {token.content: (id, token) for id, token in added if not token.normalized}
    ends = {name[at:] for name in found for at in range(1, len(name))}
    plain = [token for _, token in found.values() if _is_plain(token, ends)]
    # Templates are written with special tokens, as a rule.
    plain.sort(key=lambda token: not token.special)
    names = [token.content for token in plain[:NAMES_MAX]]
    return {name: found[name][0] for name in names if sum(name in each for each in found) == 1}


def _is_plain(token: AddedToken, ends: set[str]) -> bool:
    """Whether it takes nothing from the text before it, and no name ends as it begins."""
    name = token.content
    if token.lstrip or token.single_word or name[0] not in _BEGINS:
        return False
    return not any(name[:at] in ends for at in range(1, len(name)))


def _alone(step: dict[str, Any]) -> bool:
    """Whether what is done before or after the model is the same to a segment and in a text."""
    if step.get("type") == "TemplateProcessing":
        return [part["Sequence"]["id"] for part in step["single"] if "Sequence" in part] == ["A"]
    inner = [each for name in _SEQUENCES for each in step.get(name, ())]
    return step.get("type") in _STEPS and all(map(_alone, inner))


def _size(key: Key, ids: Ids) -> int:
    return PIECE_BYTES + getsizeof(key[2]) + ID_BYTES * len(ids)
