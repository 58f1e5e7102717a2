"""What stage 6 hands to an API shape: pieces of text while streaming, whole choices at the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.refusal import Refusal
from controlplane.kernel.price import TokenCounts
from inference.contract.frames import Usage
from inference.contract.parts import TokenLogprob, ToolCallDelta, Vectors

TokenText = Callable[[int], tuple[str, bytes]]
"""Text and bytes of one token id, for logprobs."""
UNSCORED = math.inf
"""In place of the log probability of a prompt's first token, which follows nothing."""


class Piece(msgspec.Struct, kw_only=True):
    """Thoughts, text and tool calls of one choice that may be shown now, in this order.

    `finish` closes the choice, `stop` is the stop string that ended it, if one did. `unseen`
    characters of its first token are not in the text; `usage` is that so far, where it is told.
    """

    choice: int
    text: str
    logprobs: list[TokenLogprob]
    finish: str | None = None
    calls: list[ToolCallDelta] = []
    reasoning: str = ""
    stop: str | None = None
    unseen: int = 0
    usage: Usage | None = None

    def join(self, later: Piece) -> None:
        self.reasoning += later.reasoning
        self.text += later.text
        self.logprobs += later.logprobs
        self.calls += later.calls
        self.finish, self.stop = later.finish, later.stop


class Charge(msgspec.Struct, frozen=True):
    """What a request is charged; the amount in nano-USD."""

    usage: Usage
    counts: TokenCounts
    amount_nano: int


class Writer(Protocol):
    """The second edge function of an API shape: events out, as bytes."""

    def chunk(self, pieces: list[Piece]) -> bytes:
        """Server-sent events for the pieces."""

    def next_chunk(self, choice: int, text: str) -> bytes:
        """That of a choice which goes on, behind its first: text without logprobs."""

    def last_chunk(self, charge: Charge) -> bytes:
        """Usage where asked for, and the end mark; sent after the charge is committed."""

    def body(self, pieces: list[Piece], charge: Charge) -> bytes:
        """The whole answer of a request that does not stream, one piece a choice."""

    def failure(self, refusal: Refusal) -> bytes | None:
        """What ends a stream that failed; None for the event of its dialect."""


class WriterMaker(Protocol):
    """Makes the writer of one answer; `prompt_tokens` is about as many where a text is sent on."""

    def __call__(
        self,
        request: bytes,
        ask: Ask,
        *,
        fingerprint: str,
        token_text: TokenText,
        prompt_tokens: int,
    ) -> Writer: ...


class VectorWriter(Protocol):
    """The same for vectors, which come in any order and leave together."""

    def put(self, vectors: Vectors) -> None:
        """Take vectors of some inputs."""

    def body(self, charge: Charge) -> bytes:
        """The whole answer, once all have come."""
