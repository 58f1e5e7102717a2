"""What limits the next token of a sequence from outside, such as a grammar. No torch, no numpy.

The sampler fills one row of bits per sampled row, before anything else changes the logits; sampled
tokens are accepted when they are appended. Drafts are tried and rolled back.
"""

from typing import Protocol

WORD_BITS = 32


class TokenMask(Protocol):
    """The state of one choice: it moves on with each accepted token and can be taken back."""

    def fill(self, bits: bytearray) -> None:
        """Overwrite a row of `ceil(vocabulary / 32)` words of 32 bits, the lowest first: bit `t`
        is set where token `t` may come next. A row without a set bit ends the choice with `error`.
        """

    def accept(self, token: int) -> bool:
        """Move on by a token; False, and nothing changed, where it may not come next."""

    def rollback(self, count: int) -> None:
        """Take back the last `count` accepted tokens."""
