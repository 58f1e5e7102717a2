"""What an output can hold besides token ids and text."""

import msgspec

# What templates put around a picture, in tokens.
PICTURE_MARK_TOKENS = 4


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


def prompt_at(tokens: list[int], lengths: list[int], place: int) -> list[int]:
    """One of the prompts that stand back to back, or the only one where there are no lengths."""
    begin = sum(lengths[:place])
    return tokens[begin : begin + lengths[place]] if lengths else tokens


class ShownPicture(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A picture of a prompt as JPEG, of the size that its model takes, and its tokens, at most."""

    jpeg: bytes
    tokens: int


class Vectors(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Finished vectors of an embedding job: `data` is float32, little-endian, one after another.

    `places` says which inputs they belong to: inputs of like length run together, so they are
    finished in any order.
    """

    places: list[int]
    data: bytes
