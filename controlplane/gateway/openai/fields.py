"""Fields that chat and text completions share, with their bounds, and how they become an `Ask`."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.openai.parse import STORED_PATTERN
from controlplane.gateway.openai.structured import StructuredOutputs, WantedFormat
from controlplane.gateway.openai.tolerant import IGNORED_MAX, LeftOut
from controlplane.gateway.refusal import bad_field
from controlplane.kernel.prompts import TOOLS_MAX, ToolName
from controlplane.kernel.rules import SizeClass
from inference.contract.capabilities import Capability
from inference.contract.frames import CHOICES_MAX, Sampling

FALLBACKS_MAX = 4
STOP_STRINGS_MAX = 16
STOP_CHARS_MAX = 256
NAME_CHARS_MAX = 256
LOGIT_BIAS_MAX = 300
METADATA_MAX = 16
LABEL_CHARS_MAX = 64
OF_NO_TOOL = (
    "chat_template_kwargs", "reasoning_effort", "response_format", "structured_outputs",
)  # fmt: skip
PASSED = (*OF_NO_TOOL, "parallel_tool_calls", "tool_choice", "tools")
STOP_TOKENS_MAX = 64
TOKEN_ID_MAX = 2**31
_NEEDS = {
    "ignore_eos": Capability.IGNORE_EOS, "min_tokens": Capability.MIN_TOKENS,
    "stop_token_ids": Capability.STOP_TOKENS,
}  # fmt: skip
SEED_MIN = -(2**63)
SEED_MAX = 2**63 - 1

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Count = Annotated[int, Meta(ge=1, le=2**31)]
StopString = Annotated[str, Meta(min_length=1, max_length=STOP_CHARS_MAX)]
StopList = Annotated[list[StopString], Meta(max_length=STOP_STRINGS_MAX)]
TokenId = Annotated[int, Meta(ge=0, lt=TOKEN_ID_MAX)]
# Of a prompt's tokens the last so many; -1 for as many as fit.
Truncation = Annotated[int, Meta(ge=-1, le=TOKEN_ID_MAX)]
ShortText = Annotated[str, Meta(max_length=512)]
KeptText = Annotated[str, Meta(max_length=512, pattern=STORED_PATTERN)]
LabelName = Annotated[str, Meta(max_length=LABEL_CHARS_MAX, pattern=STORED_PATTERN)]
Labels = Annotated[dict[LabelName, KeptText], Meta(max_length=METADATA_MAX)]

Fallbacks = Annotated[list[Name], Meta(max_length=FALLBACKS_MAX)]
StoredTools = Annotated[list[ToolName], Meta(max_length=TOOLS_MAX)]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """`stream_options`; obfuscation is accepted and not applied."""

    include_usage: bool = False
    include_obfuscation: bool = False
    continuous_usage_stats: bool | None = None


class Common(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Sampling and delivery parameters of both operations."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({
        "audio", "guided_decoding_backend", "guided_whitespace_pattern", "length_penalty",
        "prediction", "prompt_cache_retention", "skip_special_tokens",
        "spaces_between_special_tokens", "store", "verbosity", "web_search_options",
    })  # fmt: skip
    RENAMED: ClassVar[dict[str, str]] = {
        f"guided_{kind}": f"structured_outputs.{kind}"
        for kind in StructuredOutputs.__struct_fields__
    } | {"repeat_penalty": "repetition_penalty"}
    model: Name
    models: Fallbacks | None = None
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
    user: KeptText | None = None
    safety_identifier: KeptText | None = None
    structured_outputs: StructuredOutputs | None = None
    metadata: Labels | None = None
    service_tier: ShortText | None = None
    prompt_cache_key: ShortText | None = None
    size_class: SizeClass | None = None
    best_of: Count | None = None
    use_beam_search: Literal[False] | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=STOP_TOKENS_MAX)] | None = None


def ignored_of(request: Common, left: LeftOut) -> tuple[str, ...]:
    """Paths of all that was sent and changes nothing: what was left out, and what is only read."""
    if request.service_tier in (None, "auto", "default"):
        return left.ignored
    return (*left.ignored, "service_tier")[:IGNORED_MAX]


def stop_strings(stop: str | list[str] | None) -> tuple[str, ...]:
    """Stop strings as a tuple, whichever way they were written."""
    if stop is None:
        return ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def check_common(request: Common) -> None:
    """Rules that no single field can state; raises `Refusal`."""
    if request.stream_options is not None and not request.stream:
        raise bad_field("stream_options", "'stream_options' needs 'stream': true.")
    if request.best_of not in (None, request.n or 1):
        raise bad_field("best_of", "'best_of' must equal 'n'.", "unsupported_parameter")
    if request.top_p == 0:
        raise bad_field("top_p", "'top_p' must be greater than 0.")


def needs_of(request: Common) -> dict[Capability, str]:
    """What not every node can do, and the field that asks for it."""
    needs = {capability: field for field, capability in _NEEDS.items() if getattr(request, field)}
    scores = getattr(request, "logprobs", None)
    if scores is not None and scores is not False:
        needs[Capability.LOGPROBS] = "logprobs"
    if request.repetition_penalty not in (None, 1.0):
        needs[Capability.REPETITION_PENALTY] = "repetition_penalty"
    return needs


def sampling_of(request: Common, *, logprobs: int | None, wanted: WantedFormat | None) -> Sampling:
    """The engine's sampling parameters; the output bound is set at admission."""
    for field in ("ignore_eos", "min_tokens"):
        if wanted and getattr(request, field):
            message = f"'{field}' cannot be used where '{wanted.field}' says how the output ends."
            raise bad_field(field, message)
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
        ignore_eos=bool(request.ignore_eos),
        min_tokens=request.min_tokens or 0,
        repetition_penalty=request.repetition_penalty or 1.0,
    )


def passed_fields(request: Common) -> dict[str, Any]:
    """What an engine that takes the request itself needs as the client wrote it."""
    passed = PASSED if getattr(request, "tools", None) else OF_NO_TOOL
    return {
        name: msgspec.to_builtins(each)
        for name in passed
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


def continuous_usage(request: Common) -> bool:
    """Whether the client wants usage in the other chunks, too."""
    options = request.stream_options
    return options is not None and bool(options.include_usage and options.continuous_usage_stats)
