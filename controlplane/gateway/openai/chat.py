"""`POST /v1/chat/completions`: its request, its chunks and its body."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.ask import Ask, Picture, PromptUse, StoredParts, ToolUse, Turn
from controlplane.gateway.openai import fields
from controlplane.gateway.openai import tools as chat_tools
from controlplane.gateway.openai.parse import NAME_PATTERN, parse_body
from controlplane.gateway.openai.structured import (
    ResponseFormat,
    StructuredOutputs,
    WantedFormat,
    wanted_format,
)
from controlplane.gateway.openai.tolerant import LeftOut
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.kernel.prompts import VARIABLES_MAX
from inference.contract.frames import LOGPROBS_MAX

MESSAGES_MAX = 2048
PARTS_MAX = 64
TEMPLATE_VARIABLES_MAX = 16

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
VariableName = Annotated[str, Meta(pattern=NAME_PATTERN)]
TemplateValue = bool | int | float | fields.ShortText | None
Variables = Annotated[dict[VariableName, TemplateValue], Meta(max_length=TEMPLATE_VARIABLES_MAX)]


class TextPart(msgspec.Struct, tag="text", tag_field="type", forbid_unknown_fields=True):
    """A piece of text."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"annotations", "cache_control"})
    text: str


class RefusalPart(TextPart, tag="refusal"):
    """What an assistant said in place of an answer; read as its text."""

    text: str = msgspec.field(name="refusal")


class ImageUrl(msgspec.Struct, forbid_unknown_fields=True):
    """Where an image is: in a data URL, or behind a link; `low` detail takes few tokens."""

    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(msgspec.Struct, tag="image_url", tag_field="type", forbid_unknown_fields=True):
    """An image, for a model that sees."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"cache_control"})
    image_url: ImageUrl


class AudioPart(msgspec.Struct, tag="input_audio", tag_field="type"):
    """A sound; refused by name."""


class FilePart(msgspec.Struct, tag="file", tag_field="type"):
    """A file; refused by name."""


Part = TextPart | RefusalPart | ImagePart | AudioPart | FilePart


Content = str | Annotated[list[Part], Meta(min_length=1, max_length=PARTS_MAX)]


class Message(msgspec.Struct, forbid_unknown_fields=True):
    """One message; `developer` is read as `system`. Only an assistant's needs no content."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({
        "annotations", "audio", "cache_control", "function_call", "id", "provider_specific_fields",
    })  # fmt: skip
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: fields.ShortText | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: chat_tools.ToolCalls | None = None
    tool_call_id: chat_tools.CallId | None = None


class PromptField(msgspec.Struct, forbid_unknown_fields=True):
    """A stored template and what to fill in; versions may be written as numbers or as texts."""

    id: fields.ShortText
    version: int | fields.ShortText | None = None
    variables: (
        Annotated[dict[fields.ShortText, str | int], Meta(max_length=VARIABLES_MAX)] | None
    ) = None


class ChatRequest(fields.Common, kw_only=True):
    """The body of a chat completion; `messages` may be left out where `prompt` names a template."""

    HARMLESS: ClassVar[frozenset[str]] = fields.Common.HARMLESS | {"function_call"}
    # Its calls would come back in a form that whoever sends it does not read.
    REFUSED: ClassVar[frozenset[str]] = frozenset({"functions"})

    # Required, unless the template says it.
    model: Annotated[str, Meta(max_length=fields.NAME_CHARS_MAX)] = ""
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MESSAGES_MAX)] | None = None
    prompt: PromptField | None = None
    stored_tools: fields.StoredTools | None = None
    max_completion_tokens: fields.Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LOGPROBS_MAX)] | None = None
    response_format: ResponseFormat | None = None
    tools: chat_tools.Tools | None = None
    tool_choice: chat_tools.Choice | None = None
    parallel_tool_calls: bool | None = None
    modalities: list[Literal["text"]] | None = None
    add_generation_prompt: Literal[True] | None = None
    continue_final_message: Literal[False] | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: Variables | None = None


# Fields that only messages of one role may have.
_OF_ROLE = (
    ("tool_calls", "assistant"), ("refusal", "assistant"), ("reasoning_content", "assistant"),
    ("reasoning", "assistant"), ("tool_call_id", "tool"),
)  # fmt: skip
_decoder = msgspec.json.Decoder(ChatRequest)


def parse(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request, left = parse_body(data, _decoder)
    return ask_of(request, left, len(data))


def ask_of(request: ChatRequest, left: LeftOut, size: int, places: Sequence[str] = ()) -> Ask:
    """An `Ask` of a body of `size` bytes, with `places` as in `turns_of`; raises `Refusal`.

    Of one that names what is stored little is read yet: the rest by its `again`.
    """
    if request.prompt is None and not request.stored_tools:
        return _read(request, left, size, places)
    return Ask(
        operation="chat",
        model=request.model,
        stream=bool(request.stream),
        bytes=size,
        prompt=_prompt(request.prompt),
        stored_tools=tuple(request.stored_tools or ()),
        unknown=left.unknown,
        again=partial(_read_again, request, left, size, places),
    )


def _read_again(
    request: ChatRequest, left: LeftOut, size: int, places: Sequence[str], stored: StoredParts
) -> Ask:
    """The whole request, with what is stored where it says nothing itself."""
    tools = [{"type": "function", "function": each} for each in stored.tools]
    try:
        said = msgspec.convert({**stored.settings, "tools": tools}, ChatRequest)
    except msgspec.ValidationError as error:
        raise bad_field("prompt.id", f"What is stored is no longer valid: {error}.") from error
    open_fields = [name for name in stored.settings if getattr(request, name) in (None, "")]
    if request.max_completion_tokens is not None and "max_tokens" in open_fields:
        open_fields.remove("max_tokens")
    given = {name: getattr(said, name) for name in open_fields}
    offered = [*(request.tools or []), *(said.tools or [])]
    whole = msgspec.structs.replace(request, **given, tools=offered or None)
    return _read(whole, left, size, places)


def _read(request: ChatRequest, left: LeftOut, size: int, places: Sequence[str]) -> Ask:
    if not request.model:
        raise _missing("model")
    fields.check_common(request)
    if request.top_logprobs is not None and not request.logprobs:
        raise bad_field("top_logprobs", "'top_logprobs' needs 'logprobs': true.")
    tools = chat_tools.offered(request.tools, request.tool_choice)
    if request.messages is None and request.prompt is None:
        raise _missing("messages")
    wanted = _wanted(request) if tools else wanted_format(*_formats(request))
    return Ask(
        operation="chat",
        model=request.model,
        fallbacks=tuple(request.models or ()),
        stream=bool(request.stream),
        include_usage=fields.include_usage(request),
        sampling=fields.sampling_of(
            request,
            logprobs=(request.top_logprobs or 0) if request.logprobs else None,
            wanted=wanted,
        ),
        output_tokens=_output_tokens(request),
        stop=fields.stop_strings(request.stop),
        bytes=size,
        output_field="max_completion_tokens" if request.max_completion_tokens else "max_tokens",
        turns=turns_of(request.messages or [], places),
        prompt=_prompt(request.prompt),
        tools=tools,
        calls=wanted.calls if wanted else None,
        grammar_field=wanted.field if wanted else "",
        passed=fields.passed_fields(request),
        ignored=fields.ignored_of(request, left),
        unknown=left.unknown,
        cache_key=request.prompt_cache_key or "",
        needs=fields.needs_of(request),
        stop_tokens=tuple(request.stop_token_ids or ()),
        continuous_usage=fields.continuous_usage(request),
        effort=request.reasoning_effort,
        variables=request.chat_template_kwargs or {},
        user=request.safety_identifier or request.user or "",
        labels=request.metadata or {},
        size_class=request.size_class,
    ).seeing()


def _formats(request: ChatRequest) -> tuple[ResponseFormat | None, StructuredOutputs | None]:
    return request.response_format, request.structured_outputs


def _wanted(request: ChatRequest) -> WantedFormat:
    """Calls of tools, or what else was asked for in their place."""
    return chat_tools.wanted_calls(
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


def turns_of(messages: list[Message], places: Sequence[str] = ()) -> tuple[Turn, ...]:
    """Messages with their texts joined; a tool's message must answer a call made before it.

    `places` are what the client calls the messages. What a tool shows, the user shows after it.
    """
    turns: list[Turn] = []
    called: set[str] = set()
    held: list[Picture] = []
    for place, message in enumerate(messages):
        at = places[place] if places else f"messages[{place}]"
        _check_fields(message, at)
        if message.role == "tool" and message.tool_call_id not in called:
            field = f"{at}.tool_call_id"
            raise bad_field(field, f"'{field}' is not the id of a call in an earlier message.")
        calls: tuple[ToolUse, ...] = ()
        if message.tool_calls:
            calls = chat_tools.tool_uses(message.tool_calls, f"{at}.tool_calls")
            called.update(call.id for call in calls)
        role = "system" if message.role == "developer" else message.role
        thought = message.reasoning_content or message.reasoning
        if held and role != "tool":
            turns.append(Turn("user", "", pictures=tuple(held)))
            held = []
        text, pictures = message.content, list[Picture]()
        if not isinstance(text, str):
            text, pictures = _parts(message, at)
            if role == "tool":
                held, pictures = held + pictures, []
        turns.append(Turn(role, text, calls, message.tool_call_id, thought, tuple(pictures)))
    last = [Turn("user", "", pictures=tuple(held))] if held else []
    return (*turns, *last)


def _check_fields(message: Message, at: str) -> None:
    """Which fields a message must and may have depends on its role."""
    for field, role in _OF_ROLE:
        if getattr(message, field) and message.role != role:
            raise bad_field(f"{at}.{field}", f"'{at}.{field}' needs the role '{role}'.")
    if message.role == "tool" and message.tool_call_id is None:
        raise _missing(f"{at}.tool_call_id")
    if message.content is None and message.role != "assistant":
        raise _missing(f"{at}.content")


def _missing(field: str) -> Refusal:
    return bad_field(field, f"Missing parameter: '{field}'.", "missing_required_parameter")


def _parts(message: Message, at: str) -> tuple[str, list[Picture]]:
    """The text of a message without or with several parts, and the pictures in it."""
    if message.content is None:
        return message.refusal or "", []
    text, pictures = "", list[Picture]()
    for number, part in enumerate(message.content):
        field = f"{at}.content[{number}]"
        if isinstance(part, TextPart):
            text += part.text
        elif isinstance(part, ImagePart):
            if message.role not in ("user", "tool"):
                raise bad_field(field, f"'{field}' needs a message of the role 'user'.")
            place, shown = len(text) * (message.role == "user"), part.image_url
            pictures.append(Picture(place, field, shown.url, shown.detail))
        else:
            kind = type(part).__name__.removesuffix("Part").lower()
            raise bad_field(field, f"This model does not accept {kind} parts.")
    return text, pictures
