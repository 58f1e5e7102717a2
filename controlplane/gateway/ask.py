"""What a client asks for, whatever API shape it spoke: the edge turns requests into an `Ask`."""

from __future__ import annotations

from typing import Literal

import msgspec

from inference.contract.frames import Sampling

Operation = Literal["chat", "completion", "embedding"]


class Turn(msgspec.Struct, frozen=True):
    """One message of a chat, its parts joined to one text."""

    role: str
    content: str


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What to embed, as texts or as token ids, and how the vectors are wanted.

    `dimensions` None takes the model's own; `listed` is False where the client sent a bare input.
    """

    texts: tuple[str, ...] = ()
    tokens: tuple[list[int], ...] = ()
    listed: bool
    base64: bool
    dimensions: int | None

    def __len__(self) -> int:
        return len(self.texts) or len(self.tokens)

    def field(self, place: int) -> str:
        """What the client calls one of them, for refusals."""
        return f"input[{place}]" if self.listed else "input"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. Exactly one of `turns`, `text`, `tokens` and `inputs` holds the prompt.

    `output_tokens` is None when the client named no bound, `output_field` is what it calls it;
    `bytes` is the size of the body.
    """

    operation: Operation
    model: str
    stream: bool
    include_usage: bool
    sampling: Sampling
    output_tokens: int | None
    stop: tuple[str, ...]
    bytes: int
    turns: tuple[Turn, ...] = ()
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    output_field: str = "max_tokens"
    inputs: Inputs | None = None

    @property
    def prompt_field(self) -> str:
        """The field that holds the prompt, for refusals."""
        return "messages" if self.operation == "chat" else "prompt"
