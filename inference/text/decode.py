"""Token ids to text, one token at a time and UTF-8 safe; and think marks: the tokens between which
a model writes what it thinks before it answers.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

NOTHING: Mapping[int, str] = {}
PAIRS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
# How a line end is written in a vocabulary: by byte-level BPE, as it is, and as a byte.
BLANK = re.compile("[\u010a\n]+|<0x0A>")


class TokenDecoder:
    """Incremental decoder of one choice: the parts it returns join to the text of all tokens.

    Special tokens are left out but for those `kept`, by id with their names.
    """

    __slots__ = ("_kept", "_pending", "_stream", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, kept: Mapping[int, str] = NOTHING) -> None:
        self._tokenizer = tokenizer
        self._kept = kept
        self._stream = DecodeStream(skip_special_tokens=True)
        self._pending: list[int] = []

    def whole(self, tokens: Sequence[int]) -> str:
        """Text of all tokens of a choice at once: what `feed` and `close` give together."""
        if not self._kept.keys().isdisjoint(tokens):
            return self.feed(tokens) + self.close()
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def feed(self, tokens: Sequence[int]) -> str:
        """Text that these tokens complete; a character cut in the middle waits for its rest."""
        text = ""
        for token in tokens:
            if token in self._kept:
                text += self.close() + self._kept[token]
                continue
            part = self._stream.step(self._tokenizer, token)
            if part is None:
                self._pending.append(token)
                continue
            text += part
            if self._pending:
                self._pending.clear()
        return text

    def close(self) -> str:
        """What an end in the middle of a character leaves: replacement characters."""
        if not self._pending:
            return ""
        rest: str = self._tokenizer.decode(self._pending, skip_special_tokens=True)
        self._pending.clear()
        self._stream = DecodeStream(skip_special_tokens=True)
        return rest


class ThinkMarks(msgspec.Struct, frozen=True):
    """Token ids of the two marks, and of all tokens that are nothing but line ends."""

    opening: int
    closing: int
    blanks: frozenset[int]

    def opened(self, prompt: Sequence[int]) -> bool | None:
        """Whether a prompt ends inside thoughts; None if the model may still begin them."""
        last = next((token for token in reversed(prompt) if token not in self.blanks), -1)
        return {self.opening: True, self.closing: False}.get(last)


class ChannelMarks(msgspec.Struct, frozen=True):
    """Token ids around the messages of an answer in OpenAI's harmony format: `start`, a role,
    `channel`, its name and maybe who is called, `message`, the text, `end`.
    """

    start: int
    channel: int
    message: int
    end: int

    def opened(self, prompt: Sequence[int]) -> bool | None:
        """As of think marks; a prompt ends before the first channel."""
        return None


def channel_marks(tokenizer: Tokenizer) -> ChannelMarks | None:
    """Those of a tokenizer that has all."""
    names = [f"<|{name}|>" for name in ChannelMarks.__struct_fields__]
    ids = [id for name in names if (id := tokenizer.token_to_id(name)) is not None]
    return ChannelMarks(*ids) if len(ids) == len(names) else None


def think_marks(tokenizer: Tokenizer) -> ThinkMarks | None:
    """Those that the tokenizer declares among its added tokens."""
    added = {each.content: id for id, each in tokenizer.get_added_tokens_decoder().items()}
    for opening, closing in PAIRS:
        if opening in added and closing in added:
            names = tokenizer.get_vocab().items()
            blanks = (id for name, id in names if BLANK.fullmatch(name))
            return ThinkMarks(added[opening], added[closing], frozenset(blanks))
    return None
