"""`POST /v1/chat/completions`: its request, its chunks and its body."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from controlplane.gateway.ask import Ask, PromptUse, ToolUse, Turn
from controlplane.gateway.openai.fields import (
    Common,
    Count,
    ShortText,
    check_common,
    include_usage,
    passed_fields,
    sampling_of,
    stop_strings,
)
from controlplane.gateway.openai.parse import parse_body
from controlplane.gateway.openai.structured import (
    ResponseFormat,
    StructuredOutputs,
    WantedFormat,
    wanted_format,
)
from controlplane.gateway.openai.tools import (
    CallId,
    Choice,
    ToolCalls,
    Tools,
    offered,
    tool_uses,
    wanted_calls,
)
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.kernel.prompts import VARIABLES_MAX
from inference.contract.frames import LOGPROBS_MAX

MESSAGES_MAX = 2048
PARTS_MAX = 64


class TextPart(msgspec.Struct, tag="text", tag_field="type", forbid_unknown_fields=True):
    """A piece of text."""

    text: str


class ImagePart(msgspec.Struct, tag="image_url", tag_field="type"):
    """An image; refused by name, since no served model sees."""


class AudioPart(msgspec.Struct, tag="input_audio", tag_field="type"):
    """A sound; refused by name."""


class FilePart(msgspec.Struct, tag="file", tag_field="type"):
    """A file; refused by name."""


Part = TextPart | ImagePart | AudioPart | FilePart


Content = str | Annotated[list[Part], Meta(min_length=1, max_length=PARTS_MAX)]


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """One message; `developer` is read as `system`. Only an assistant's needs no content."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None | UnsetType = UNSET
    name: ShortText | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: ToolCalls | None = None
    tool_call_id: CallId | None = None


class PromptField(msgspec.Struct, forbid_unknown_fields=True):
    """A stored template and what to fill in; versions may be written as numbers or as texts."""

    id: ShortText
    version: int | ShortText | None = None
    variables: Annotated[dict[ShortText, str | int], Meta(max_length=VARIABLES_MAX)] | None = None


class ChatRequest(Common, kw_only=True):
    """The body of a chat completion; `messages` may be left out where `prompt` names a template."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MESSAGES_MAX)] | UnsetType = (
        UNSET
    )
    prompt: PromptField | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LOGPROBS_MAX)] | None = None
    response_format: ResponseFormat | None = None
    tools: Tools | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None


# Fields that only messages of one role may have.
_OF_ROLE = (
    ("tool_calls", "assistant"), ("refusal", "assistant"), ("reasoning_content", "assistant"),
    ("tool_call_id", "tool"),
)  # fmt: skip
_decoder = msgspec.json.Decoder(ChatRequest)


def parse(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request = parse_body(data, _decoder)
    check_common(request)
    if request.top_logprobs is not None and not request.logprobs:
        raise bad_field("top_logprobs", "'top_logprobs' needs 'logprobs': true.")
    tools = offered(request.tools, request.tool_choice, request.parallel_tool_calls)
    if request.messages is UNSET and request.prompt is None:
        raise _missing("messages")
    wanted = _wanted(request) if tools else wanted_format(*_formats(request))
    return Ask(
        operation="chat",
        model=request.model,
        stream=bool(request.stream),
        include_usage=include_usage(request),
        sampling=sampling_of(
            request,
            logprobs=(request.top_logprobs or 0) if request.logprobs else None,
            wanted=wanted,
        ),
        output_tokens=_output_tokens(request),
        stop=stop_strings(request.stop),
        bytes=len(data),
        output_field="max_completion_tokens" if request.max_completion_tokens else "max_tokens",
        turns=() if request.messages is UNSET else _turns(request.messages),
        prompt=_prompt(request.prompt),
        tools=tools,
        grammar_field=wanted.field if wanted else "",
        passed=passed_fields(request),
    )


def _formats(request: ChatRequest) -> tuple[ResponseFormat | None, StructuredOutputs | None]:
    return request.response_format, request.structured_outputs


def _wanted(request: ChatRequest) -> WantedFormat:
    """Calls of tools, or what else was asked for in their place."""
    return wanted_calls(
        request.tools or [],
        request.tool_choice,
        many=request.parallel_tool_calls is not False,
        content=wanted_format(*_formats(request)),
    )


def _output_tokens(request: ChatRequest) -> int | None:
    both = (request.max_tokens, request.max_completion_tokens)
    if None not in both and both[0] != both[1]:
        raise bad_field(
            "max_completion_tokens", "'max_tokens' and 'max_completion_tokens' differ; send one."
        )
    return request.max_completion_tokens or request.max_tokens


def _prompt(field: PromptField | None) -> PromptUse | None:
    if field is None:
        return None
    version = field.version
    if isinstance(version, str):
        if not (version.isascii() and version.isdecimal()):
            raise bad_field("prompt.version", "'prompt.version' must be the number of a version.")
        version = int(version)
    return PromptUse(field.id, version, field.variables or {})


def _turns(messages: list[Message]) -> tuple[Turn, ...]:
    """Messages with their texts joined; a tool's message must answer a call made before it."""
    turns: list[Turn] = []
    called: set[str] = set()
    for place, message in enumerate(messages):
        at = f"messages[{place}]"
        _check_fields(message, at)
        if message.role == "tool" and message.tool_call_id not in called:
            field = f"{at}.tool_call_id"
            raise bad_field(field, f"'{field}' is not the id of a call in an earlier message.")
        calls: tuple[ToolUse, ...] = ()
        if message.tool_calls:
            calls = tool_uses(message.tool_calls, f"{at}.tool_calls")
            called.update(call.id for call in calls)
        role = "system" if message.role == "developer" else message.role
        turns.append(
            Turn(role, _text(message, at), calls, message.tool_call_id, message.reasoning_content)
        )
    return tuple(turns)


def _check_fields(message: Message, at: str) -> None:
    """Which fields a message must and may have depends on its role."""
    for field, role in _OF_ROLE:
        if getattr(message, field) is not None and message.role != role:
            raise bad_field(f"{at}.{field}", f"'{at}.{field}' needs the role '{role}'.")
    if message.role == "tool" and message.tool_call_id is None:
        raise _missing(f"{at}.tool_call_id")
    if message.role == "assistant" and (message.tool_calls or message.refusal):
        return
    if message.content is UNSET:
        raise _missing(f"{at}.content")
    if message.content is None:
        raise bad_field(f"{at}.content", f"'{at}.content' must be a string or a list, not null.")


def _missing(field: str) -> Refusal:
    return bad_field(field, f"Missing parameter: '{field}'.", "missing_required_parameter")


def _text(message: Message, at: str) -> str:
    if message.content is None or message.content is UNSET:
        return message.refusal or ""
    if isinstance(message.content, str):
        return message.content
    texts = []
    for number, part in enumerate(message.content):
        if not isinstance(part, TextPart):
            kind = type(part).__name__.removesuffix("Part").lower()
            raise bad_field(f"{at}.content[{number}]", f"This model does not accept {kind} parts.")
        texts.append(part.text)
    return "".join(texts)
