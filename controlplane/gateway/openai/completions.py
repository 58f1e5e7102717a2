"""`POST /v1/completions`: text completions of one or several prompts, as texts or token ids."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from controlplane.gateway.ask import Ask
from controlplane.gateway.openai import fields
from controlplane.gateway.openai.embeddings import sorted_items
from controlplane.gateway.openai.parse import VALUES_MAX, parse_body
from controlplane.gateway.openai.structured import wanted_format
from controlplane.gateway.refusal import bad_field
from inference.contract.capabilities import Capability
from inference.contract.frames import JOB_CHOICES_MAX, LOGPROBS_MAX, Sampling

PROMPT_TOKENS_MAX = 2**20

Tokens = Annotated[list[int], Meta(min_length=1, max_length=PROMPT_TOKENS_MAX)]
Prompts = Annotated[list[str | int | Tokens], Meta(min_length=1, max_length=PROMPT_TOKENS_MAX)]


class CompletionRequest(fields.Common, kw_only=True):
    """The body of a text completion; with `echo` it may generate nothing."""

    REFUSED: ClassVar[frozenset[str]] = frozenset(
        {"function_call", "functions", "response_format", "suffix", "tool_choice", "tools"}
    )

    prompt: str | Prompts
    max_tokens: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=LOGPROBS_MAX)] | None = None
    echo: bool | None = None
    truncate_prompt_tokens: fields.Truncation | None = None


_decoder = msgspec.json.Decoder(CompletionRequest)


def parse(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request, left = parse_body(data, _decoder, values_max=PROMPT_TOKENS_MAX + VALUES_MAX)
    fields.check_common(request)
    if request.max_tokens == 0 and not request.echo:
        raise bad_field("max_tokens", "'max_tokens' must be at least 1 without 'echo': true.")
    prompts = _prompts(request)
    only = prompts[0] if len(prompts) == 1 else None
    wanted = wanted_format(None, request.structured_outputs)
    sampling = fields.sampling_of(request, logprobs=request.logprobs, wanted=wanted)
    sampling = msgspec.structs.replace(sampling, prompt_logprobs=_scores(request))
    return Ask(
        operation="completion",
        model=request.model,
        fallbacks=tuple(request.models or ()),
        stream=bool(request.stream),
        include_usage=fields.include_usage(request),
        sampling=sampling,
        output_tokens=request.max_tokens,
        stop=fields.stop_strings(request.stop),
        bytes=len(data),
        text=only if isinstance(only, str) else None,
        tokens=tuple(only) if isinstance(only, list) else None,
        prompts=prompts if only is None else (),
        grammar_field=wanted.field if wanted else "",
        passed=fields.passed_fields(request),
        ignored=fields.ignored_of(request, left),
        unknown=left.unknown,
        cache_key=request.prompt_cache_key or "",
        needs=_needs(request, sampling, len(prompts)),
        stop_tokens=tuple(request.stop_token_ids or ()),
        truncate=request.truncate_prompt_tokens or None,
        repeats_prompt=bool(request.echo),
        continuous_usage=fields.continuous_usage(request),
        user=request.safety_identifier or request.user or "",
        labels=request.metadata or {},
        size_class=request.size_class,
    )


def _scores(request: CompletionRequest) -> int | None:
    """How the tokens of a repeated prompt are scored; also where nothing else is computed."""
    if request.echo and request.logprobs is not None:
        return request.logprobs
    return 0 if request.max_tokens == 0 else None


def _needs(request: CompletionRequest, sampling: Sampling, prompts: int) -> dict[Capability, str]:
    needs = fields.needs_of(request)
    if sampling.prompt_logprobs is not None:
        field = "echo" if request.logprobs is not None else "max_tokens"
        needs = {Capability.PROMPT_LOGPROBS: field, **needs}
    if prompts > 1:
        needs[Capability.PROMPTS] = "prompt"
    return needs


def _prompts(request: CompletionRequest) -> tuple[str | list[int], ...]:
    texts, tokens = sorted_items(request.prompt, "prompt")
    if any(not 0 <= min(ids) <= max(ids) < fields.TOKEN_ID_MAX for ids in tokens):
        raise bad_field("prompt", "'prompt' contains a number that is not a token id.")
    prompts = texts or tokens
    if len(prompts) * (request.n or 1) > JOB_CHOICES_MAX:
        message = f"'prompt' times 'n' asks for more than {JOB_CHOICES_MAX} choices. Send fewer."
        raise bad_field("prompt", message)
    return prompts
