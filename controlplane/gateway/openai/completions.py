"""`POST /v1/completions`: text completions. One prompt a request, as text or token ids."""

from typing import Annotated

import msgspec
from msgspec import Meta

from controlplane.gateway.ask import Ask
from controlplane.gateway.openai.fields import (
    Common,
    check_common,
    include_usage,
    passed_fields,
    sampling_of,
    stop_strings,
)
from controlplane.gateway.openai.parse import VALUES_MAX, parse_body
from controlplane.gateway.openai.structured import wanted_format
from controlplane.gateway.refusal import bad_field

LEGACY_LOGPROBS_MAX = 5
PROMPT_TOKENS_MAX = 2**20
TOKEN_ID_MAX = 2**31


class CompletionRequest(Common, kw_only=True):
    """The body of a text completion."""

    prompt: str | Annotated[list[str | int], Meta(min_length=1, max_length=PROMPT_TOKENS_MAX)]
    logprobs: Annotated[int, Meta(ge=0, le=LEGACY_LOGPROBS_MAX)] | None = None
    echo: bool | None = None
    best_of: int | None = None


_decoder = msgspec.json.Decoder(CompletionRequest)


def parse(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request = parse_body(data, _decoder, values_max=PROMPT_TOKENS_MAX + VALUES_MAX)
    check_common(request)
    if request.echo:
        raise bad_field("echo", "'echo' is not supported.", "unsupported_parameter")
    if request.best_of not in (None, request.n or 1):
        raise bad_field("best_of", "'best_of' must equal 'n'.", "unsupported_parameter")
    text, tokens = _prompt(request.prompt)
    wanted = wanted_format(None, request.structured_outputs)
    return Ask(
        operation="completion",
        model=request.model,
        stream=bool(request.stream),
        include_usage=include_usage(request),
        sampling=sampling_of(request, logprobs=request.logprobs, wanted=wanted),
        output_tokens=request.max_tokens,
        stop=stop_strings(request.stop),
        bytes=len(data),
        text=text,
        tokens=tokens,
        grammar_field=wanted.field if wanted else "",
        passed=passed_fields(request),
    )


def _prompt(given: str | list[str | int]) -> tuple[str | None, tuple[int, ...] | None]:
    if isinstance(given, str):
        return given, None
    if len(given) == 1 and isinstance(given[0], str):
        return given[0], None
    tokens = [item for item in given if isinstance(item, int) and 0 <= item < TOKEN_ID_MAX]
    if len(tokens) != len(given):
        raise bad_field("prompt", "'prompt' must be one string or one list of token ids.")
    return None, tuple(tokens)
