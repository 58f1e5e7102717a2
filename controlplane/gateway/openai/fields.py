"""Fields that chat and text completions share, with their bounds, and how they become an `Ask`."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.openai.structured import StructuredOutputs, WantedFormat
from controlplane.gateway.refusal import bad_field
from inference.contract.frames import CHOICES_MAX, Sampling

STOP_STRINGS_MAX = 4
STOP_CHARS_MAX = 256
LOGIT_BIAS_MAX = 300
METADATA_MAX = 16
PASSED = (
    "parallel_tool_calls", "response_format", "structured_outputs", "tool_choice", "tools",
)  # fmt: skip
SEED_MIN = -(2**63)
SEED_MAX = 2**63 - 1

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Count = Annotated[int, Meta(ge=1, le=2**31)]
StopString = Annotated[str, Meta(min_length=1, max_length=STOP_CHARS_MAX)]
StopList = Annotated[list[StopString], Meta(max_length=STOP_STRINGS_MAX)]
ShortText = Annotated[str, Meta(max_length=512)]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`stream_options`; obfuscation is accepted and not applied."""

    include_usage: bool = False
    include_obfuscation: bool = False


class Common(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Sampling and delivery parameters of both operations."""

    model: Name
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31)] | None = None
    min_p: Share | None = None
    n: Annotated[int, Meta(ge=1, le=CHOICES_MAX)] | None = None
    max_tokens: Count | None = None
    stop: StopString | StopList | None = None
    seed: Annotated[int, Meta(ge=SEED_MIN, le=SEED_MAX)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    user: ShortText | None = None
    structured_outputs: StructuredOutputs | None = None
    metadata: dict[str, ShortText] | None = None
    service_tier: Literal["auto", "default"] | None = None


def stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """Stop strings as a tuple, whichever way they were written."""
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def check_common(request: Common) -> None:
    """Rules that no single field can state; raises `Refusal`."""
    if request.stream_options is not None and not request.stream:
        raise bad_field("stream_options", "'stream_options' needs 'stream': true.")
    if request.metadata is not None and len(request.metadata) > METADATA_MAX:
        raise bad_field("metadata", f"'metadata' holds at most {METADATA_MAX} entries.")
    if request.top_p == 0:
        raise bad_field("top_p", "'top_p' must be greater than 0.")


def sampling_of(request: Common, *, logprobs: int | None, wanted: WantedFormat | None) -> Sampling:
    """The engine's sampling parameters; the output bound is set at admission."""
    return Sampling(
        max_tokens=0,
        n=request.n or 1,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=max(0, request.top_k or 0),
        min_p=request.min_p or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        seed=request.seed,
        logprobs=logprobs,
        logit_bias=_bias(request.logit_bias),
        grammar=wanted.grammar if wanted else None,
    )


def passed_fields(request: Common) -> dict[str, Any]:
    """What an engine that takes the request itself needs as the client wrote it."""
    return {
        name: msgspec.to_builtins(each)
        for name in PASSED
        if (each := getattr(request, name, None)) is not None
    }


def _bias(given: dict[str, float] | None) -> dict[int, float]:
    if not given:
        return {}
    if len(given) > LOGIT_BIAS_MAX:
        raise bad_field("logit_bias", f"'logit_bias' holds at most {LOGIT_BIAS_MAX} entries.")
    try:
        return {int(token): bias for token, bias in given.items()}
    except ValueError as error:
        raise bad_field("logit_bias", "The keys of 'logit_bias' must be token ids.") from error


def include_usage(request: Common) -> bool:
    """Whether the client wants the usage chunk."""
    return request.stream_options is not None and request.stream_options.include_usage
