"""Token ids to text, one token at a time and UTF-8 safe."""

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


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
