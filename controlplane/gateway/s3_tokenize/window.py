"""Prompt and output must fit the context window: a hard refusal before any node sees the request."""

from __future__ import annotations

from controlplane.gateway.ask import Ask
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.kernel.spans import INDEX

WINDOW = INDEX["s3_tokenize.window"]


def fit_window(
    call: Call, ask: Ask, *, prompt_tokens: int, output_tokens: int, window_tokens: int
) -> int:
    """Return the output bound that fits; raises `Refusal` (400, `context_length_exceeded`).

    An output length that the client named must fit whole. The model's default is cut to the room.
    """
    began = call.spans.clock()
    room = window_tokens - prompt_tokens
    call.spans.add(WINDOW, began)
    if room >= output_tokens:
        return output_tokens
    if room > 0 and ask.output_tokens is None:
        return room
    raise _overflow(ask, prompt_tokens, output_tokens, window_tokens)


def _overflow(ask: Ask, prompt_tokens: int, output_tokens: int, window_tokens: int) -> Refusal:
    field = "messages" if ask.operation == "chat" else "prompt"
    message = (
        f"This model's maximum context length is {window_tokens} tokens. However, you requested"
        f" {prompt_tokens + output_tokens} tokens ({prompt_tokens} in the {field},"
        f" {output_tokens} in the completion). Please reduce the length of either one."
    )
    return bad_field(field, message, "context_length_exceeded")
