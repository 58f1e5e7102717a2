"""What an output can hold besides token ids and text."""

import msgspec


class TokenLogprob(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Log probability of the chosen token and of the alternatives, highest first."""

    token: int
    logprob: float
    top: list[tuple[int, float]]


class ToolCallDelta(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A piece of one tool call; `id` and `name` come with its first, `arguments` in fragments."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Vectors(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Finished vectors of an embedding job: `data` is float32, little-endian, one after another.

    `places` says which inputs they belong to: inputs of like length run together, so they are
    finished in any order.
    """

    places: list[int]
    data: bytes
