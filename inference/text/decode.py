"""Token ids to text, one token at a time and UTF-8 safe; and think marks: the tokens between which
a model writes what it thinks before it answers.
"""

import re
from collections.abc import Sequence

import msgspec
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

PAIRS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
# How a line end is written in a vocabulary: by byte-level BPE, as it is, and as a byte.
BLANK = re.compile("[\u010a\n]+|<0x0A>")


class TokenDecoder:
    """Incremental decoder of one choice: the parts it returns join to the text of all tokens."""

    __slots__ = ("_pending", "_stream", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._pending: list[int] = []

    def whole(self, tokens: Sequence[int]) -> str:
        """Text of all tokens of a choice at once: what `feed` and `close` give together."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))

    def feed(self, tokens: Sequence[int]) -> str:
        """Text that these tokens complete; a character cut in the middle waits for its rest."""
        text = ""
        for token in tokens:
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
        rest = self._tokenizer.decode(self._pending, skip_special_tokens=True)
        self._pending.clear()
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


def think_marks(tokenizer: Tokenizer) -> ThinkMarks | None:
    """Those that the tokenizer declares among its added tokens."""
    added = {each.content: id for id, each in tokenizer.get_added_tokens_decoder().items()}
    for opening, closing in PAIRS:
        if opening in added and closing in added:
            names = tokenizer.get_vocab().items()
            blanks = (id for name, id in names if BLANK.fullmatch(name))
            return ThinkMarks(added[opening], added[closing], frozenset(blanks))
    return None
