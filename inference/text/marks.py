"""Keeps what clients write text: a special token's name in a message must not become the token.

Templates put messages and their own special tokens into one text, in which a tokenizer cannot tell
whose they are. So a name inside a message is broken by a mark before it is rendered, and the text
is encoded in parts between the marks: no part has a whole name, and joined they read the same, but
for the blank that tokenizers of SentencePiece's kind put before each part.
"""

import re
import secrets
from collections.abc import Iterable
from typing import Any

# No client can know it, so none can write it.
MARK = f"\ufdd0{secrets.token_hex(8)}\ufdd1"


class SpecialNames:
    """The names of a tokenizer's special tokens. One of a single character cannot be broken."""

    def __init__(self, names: Iterable[str]) -> None:
        longest_first = sorted({name for name in names if len(name) > 1}, key=len, reverse=True)
        either = "|".join(map(re.escape, longest_first))
        self._found = re.compile(either) if longest_first else None
        # Names may overlap, so each place where one begins gets its own mark.
        self._begins = re.compile(f"(?={either})(.)", re.DOTALL)

    def broken(self, value: Any) -> Any:
        """A copy of texts, lists and maps with every name broken; the same where there is none."""
        if isinstance(value, str):
            if self._found is None or not self._found.search(value):
                return value
            return self._begins.sub(lambda begin: begin[0] + MARK, value)
        if isinstance(value, dict):
            return {self.broken(key): self.broken(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.broken(each) for each in value]
        return value
