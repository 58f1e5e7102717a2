"""Prompt and output must fit the context window: a hard refusal before any node hears of it."""

from __future__ import annotations

import msgspec

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.kernel.spans import INDEX
from inference.text.model_text import ModelText

WINDOW = INDEX["s3_tokenize.window"]


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The context window, and the output bound that prompt and window must leave room for."""

    window_tokens: int
    output_tokens: int


def fit_window(call: Call, ask: Ask, *, prompt_tokens: int, room: Room) -> int:
    """Return the output bound that fits; raises `Refusal` (400, `context_length_exceeded`).

    An output length that the client named must fit whole. The model's default is cut to the room.
    """
    began = call.spans.clock()
    left = room.window_tokens - prompt_tokens
    call.spans.add(WINDOW, began)
    if left >= room.output_tokens:
        return room.output_tokens
    if left > 0 and ask.output_tokens is None:
        return left
    raise _overflow(ask, prompt_tokens, room)


def check_length(ask: Ask, prompt: str, text: ModelText, *, window_tokens: int) -> None:
    """Refuse a text that no split into tokens could fit, before it is encoded at our cost."""
    tokens_least = len(prompt) // text.piece_chars_max
    if tokens_least > window_tokens:
        message = (
            f"This model's maximum context length is {window_tokens} tokens. However, your"
            f" {ask.prompt_field} have at least {tokens_least} tokens. Please reduce the length."
        )
        raise bad_field(ask.prompt_field, message, "context_length_exceeded")


def _overflow(ask: Ask, prompt_tokens: int, room: Room) -> Refusal:
    field = ask.prompt_field
    wanted = prompt_tokens + room.output_tokens
    message = (
        f"This model's maximum context length is {room.window_tokens} tokens. However, you"
        f" requested {wanted} tokens ({prompt_tokens} in the {field}, {room.output_tokens} in the"
        " completion). Please reduce the length of either one."
    )
    return bad_field(field, message, "context_length_exceeded")
