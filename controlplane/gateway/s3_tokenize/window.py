"""Prompt and output must fit the context window: a hard refusal before any node hears of it."""

import msgspec

from controlplane.gateway.ask import Ask, Inputs
from controlplane.gateway.call import Call
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.kernel.spans import INDEX
from inference.contract.frames import INPUTS_TOKENS_MAX
from inference.text.model_text import ModelText

WINDOW = INDEX["s3_tokenize.window"]
# White space and the like can be longer than any token, but not a whole window of it.
CHARS_PER_TOKEN_MAX = 32


class ContextWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The context window, and the output bound that prompt and window must leave room for.

    `seen_tokens` are those of pictures, beside the prompt's ids.
    """

    window_tokens: int
    output_tokens: int
    seen_tokens: int = 0


def fit_window(call: Call, ask: Ask, *, prompt_tokens: int, window: ContextWindow) -> int:
    """Return the output bound that fits; raises `Refusal` (400, `context_length_exceeded`).

    An output length that the client named must fit whole, unless its shape has bounds capped. The
    model's default is cut to the window.
    """
    began = call.spans.clock()
    prompt_tokens += window.seen_tokens
    left = window.window_tokens - prompt_tokens
    call.spans.add(WINDOW, began)
    if left >= window.output_tokens:
        return window.output_tokens
    if left > 0 and (ask.output_tokens is None or ask.caps_output):
        return left
    raise _overflow(ask, prompt_tokens, window)


def check_length(ask: Ask, prompt: str, text: ModelText, *, window_tokens: int) -> None:
    """Refuse a text that no split into tokens could fit, before it is encoded at our cost."""
    tokens_least = len(prompt) // text.piece_chars_max
    if tokens_least > window_tokens:
        message = (
            f"This model's maximum context length is {window_tokens} tokens. However, your"
            f" {ask.prompt_field} have at least {tokens_least} tokens. Please reduce the length."
        )
        raise bad_field(ask.prompt_field, message, "context_length_exceeded")


def check_texts(call: Call, inputs: Inputs, *, window_tokens: int) -> None:
    """Refuse a text to embed that is too long to be worth encoding at our cost."""
    began = call.spans.clock()
    chars_max = window_tokens * CHARS_PER_TOKEN_MAX
    long = next((place for place, each in enumerate(inputs.texts) if len(each) > chars_max), None)
    call.spans.add(WINDOW, began)
    if long is not None:
        raise _too_long(inputs, long, f"{len(inputs.texts[long])} characters", window_tokens)


def fit_inputs(
    call: Call, inputs: Inputs, encoded: list[list[int]], *, window_tokens: int, since: int = 0
) -> None:
    """Each input must have tokens and fit the window, all together the bound; raises `Refusal`.

    Inputs before `since` were seen before.
    """
    began = call.spans.clock()
    lengths = [len(ids) for ids in encoded]
    fresh = range(since, len(lengths))
    long = next((at for at in fresh if lengths[at] > window_tokens), None)
    empty = next((at for at in fresh if not lengths[at]), None)
    call.spans.add(WINDOW, began)
    if empty is not None:
        field = inputs.field(empty)
        raise bad_field(field, f"'{field}' has no tokens to embed.")
    if long is not None:
        raise _too_long(inputs, long, f"{lengths[long]} tokens", window_tokens)
    check_total(sum(lengths), inputs.name)


def check_total(tokens: int, field: str = "prompt") -> None:
    """All inputs or prompts of a request together must keep the bound; raises `Refusal`."""
    if tokens > INPUTS_TOKENS_MAX:
        message = (
            f"The {field}s have more than {INPUTS_TOKENS_MAX} tokens in total. Split them "
            "into several requests."
        )
        raise bad_field(field, message, "context_length_exceeded")


def _too_long(inputs: Inputs, place: int, size: str, window_tokens: int) -> Refusal:
    field = inputs.field(place)
    message = (
        f"This model's maximum context length is {window_tokens} tokens. However, '{field}' has"
        f" {size}. Please reduce the length."
    )
    return bad_field(field, message, "context_length_exceeded")


def _overflow(ask: Ask, prompt_tokens: int, window: ContextWindow) -> Refusal:
    field = ask.prompt_field
    wanted = prompt_tokens + window.output_tokens
    message = (
        f"This model's maximum context length is {window.window_tokens} tokens. However, you"
        f" requested {wanted} tokens ({prompt_tokens} in the {field}, {window.output_tokens} in the"
        " completion). Please reduce the length of either one."
    )
    return bad_field(field, message, "context_length_exceeded")
