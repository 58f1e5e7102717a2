"""`POST /v1/responses`: its body, read as the chat that it asks for."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.ask import Ask, StoredParts
from controlplane.gateway.openai import chat, structured
from controlplane.gateway.openai.fields import (
    Fallbacks,
    KeptText,
    Labels,
    Name,
    Share,
    ShortText,
    StoredTools,
    Temperature,
)
from controlplane.gateway.openai.parse import parse_body
from controlplane.gateway.openai.tolerant import IGNORED_MAX, LeftOut
from controlplane.gateway.openai.tools import TOOLS_MAX
from controlplane.gateway.refusal import Refusal, bad_field
from controlplane.gateway.responses.items import (
    Conversation,
    FlatFunction,
    NamedChoice,
    OfferedTools,
    converted,
)
from controlplane.kernel.contents.kept import KEPT_BYTES_MAX, KeptContent
from controlplane.kernel.rules import SizeClass
from inference.contract.frames import LOGPROBS_MAX

LOGPROBS = "message.output_text.logprobs"
OUTPUT_FIELD = "max_output_tokens"
NOT_KEPT = ": the project of this key does not keep content. Send the whole input."
# What the answer repeats as it came, with what it says where nothing came.
ECHOED: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "previous_response_id": None, "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None}, "safety_identifier": None, "store": False,
    "temperature": 1.0, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [],
    "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "user": None,
}  # fmt: skip
_TOOL = re.compile(r"tools\[(\d+)\](\.function)?")


class FlatSchema(msgspec.Struct, tag="json_schema", tag_field="type", forbid_unknown_fields=True):
    """JSON that validates, its schema beside its name."""

    name: structured.SchemaName
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class TextOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What the text has to be."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"verbosity"})
    format: structured.TextFormat | structured.JsonFormat | FlatSchema | None = None


class ReasoningOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How much a model thinks. Thoughts are sent as they are, so no summary is made."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"context", "generate_summary", "summary"})
    effort: chat.Effort | None = None


class ResponseStreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing of it changes a stream here."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"include_obfuscation"})


class ResponseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body; items and tools are read one by one, since each has a shape of its own."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({
        "access_programs", "background_options", "client_metadata", "context_management", "image",
        "max_tool_calls", "moderation", "prompt_cache_options", "prompt_cache_retention",
        "service_tier",
    })  # fmt: skip

    model: Name
    models: Fallbacks | None = None
    input: str | list[Any] | None = None
    instructions: str | None = None
    prompt: chat.PromptField | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=LOGPROBS_MAX)] | None = None
    include: list[str] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=TOOLS_MAX)] | None = None
    stored_tools: StoredTools | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    metadata: Labels | None = None
    user: KeptText | None = None
    safety_identifier: KeptText | None = None
    prompt_cache_key: ShortText | None = None
    size_class: SizeClass | None = None
    truncation: Literal["auto", "disabled"] | None = None
    background: bool | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None


_decoder = msgspec.json.Decoder(ResponseRequest)


def parse(
    data: bytes, *, own_id: str = "", keeps: bool = False, earlier: KeptContent | None = None
) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`.

    Where the project `keeps` content, `echo` has the body to be kept, empty for nothing. Without
    the `earlier` response that it follows it has the id of that, and the rest is not read.
    """
    request, left = parse_body(data, _decoder)
    stores = _stores(request, keeps=keeps)
    if request.previous_response_id and earlier is None:
        echo = {"previous": request.previous_response_id}
        return Ask(operation="chat", model=request.model, bytes=len(data), echo=echo)
    if request.input is None and request.prompt is None:
        raise bad_field("input", "Missing parameter: 'input'.", "missing_required_parameter")
    said, tools = Conversation(request.instructions), _offered(request.tools or [])
    before = [] if earlier is None else _items_of(earlier)
    said.take(before, "previous_response_id")
    # They were told of before.
    said.ignored.clear()
    said.take(request.input or [])
    size = len(data) + (len(msgspec.json.encode(before)) if before else 0)
    ask = _read(request, left, size, said, tools)
    ignored = [*said.ignored, *tools.ignored]
    if request.truncation == "auto":
        ignored.append("truncation")
    given = msgspec.json.decode(data)
    body = _kept(given, before, own_id) if stores else b""
    if request.background and not body:
        raise bad_field("input", f"The conversation is larger than {KEPT_BYTES_MAX} bytes.")
    if request.store and not body:
        ignored.append("store")
    given["store"] = bool(body)
    repeated: dict[str, Any] = {
        "request": _echoed(given),
        "namespaces": tools.namespaces,
        "custom": tools.custom,
        "background": bool(request.background),
        "kept": body,
    }
    return ask.changed(partial(_as_response, ignored=ignored, echo=repeated))


def _read(
    request: ResponseRequest, left: LeftOut, size: int, said: Conversation, tools: OfferedTools
) -> Ask:
    """The chat, and what is read of it again, refused by the fields of a response."""
    try:
        ask = chat.ask_of(_as_chat(request, said, tools), left, size, said.places)
    except Refusal as refusal:
        raise _renamed(refusal, tools) from refusal
    again = ask.again
    if again is None:
        return ask

    def renamed(stored: StoredParts) -> Ask:
        try:
            return again(stored)
        except Refusal as refusal:
            raise _renamed(refusal, tools) from refusal

    return msgspec.structs.replace(ask, again=renamed, stored_allowed=tools.allowed)


def _as_response(ask: Ask, *, ignored: Sequence[str], echo: dict[str, Any]) -> Ask:
    field = ask.grammar_field
    return msgspec.structs.replace(
        ask,
        output_field=OUTPUT_FIELD,
        effort_field="reasoning.effort",
        ignored=(*ask.ignored, *ignored)[:IGNORED_MAX],
        grammar_field="text.format" if field.startswith("response_format") else field,
        echo=dict(echo),
    )


def _stores(request: ResponseRequest, *, keeps: bool) -> bool:
    """Whether the response is to be stored; raises `Refusal` (400) for what needs that."""
    stores = keeps and request.store is not False
    for field in ("conversation", "previous_response_id", "background"):
        if getattr(request, field) and (field == "conversation" or not keeps):
            message = f"'{field}' is not supported{'' if keeps else NOT_KEPT}"
            raise bad_field(field, message, "unsupported_parameter")
    if request.background and not stores:
        raise bad_field("store", "'background' needs 'store': true.")
    return stores


def _items_of(earlier: KeptContent) -> list[Any]:
    """All that was said up to a response, and the response."""
    asked, answered = map(msgspec.json.decode, (earlier.body, earlier.response))
    return [*asked["input"], *answered["output"]]


def _kept(given: dict[str, Any], before: list[Any], own_id: str) -> bytes:
    """A body with all items, each of which has an id and its content in parts; nothing where that
    is too large to be kept whole.
    """
    new = given.get("input") or []
    items = [*before, *([{"role": "user", "content": new}] if isinstance(new, str) else new)]
    for number, item in enumerate(items):
        items[number] = told = {"type": "message", **item}
        told["id"] = item.get("id") or f"msg_{own_id}_i{number}"
        if isinstance(text := item.get("content"), str):
            kind = "output_text" if item.get("role") == "assistant" else "input_text"
            told["content"] = [{"type": kind, "text": text}]
    body = msgspec.json.encode({**given, "input": items})
    return body if len(body) <= KEPT_BYTES_MAX else b""


def _offered(given: Sequence[dict[str, Any]]) -> OfferedTools:
    """The tools that are functions of the client; raises `Refusal` (400)."""
    offered = OfferedTools()

    def take(tool: dict[str, Any], at: str, namespace: str | None) -> None:
        kind = tool.get("type")
        if kind in ("function", "custom"):
            held = {name: value for name, value in tool.items() if value is not None}
            offered.add(kind, converted(held, FlatFunction, at), at, namespace)
        elif kind == "namespace" and namespace is None:
            several = tool.get("tools") or []
            if not isinstance(several, list):
                raise bad_field(f"{at}.tools", f"'{at}.tools' must be a list.")
            for number, inner in enumerate(several):
                place = f"{at}.tools[{number}]"
                if not isinstance(inner, dict):
                    raise bad_field(place, f"'{place}' must be an object.")
                take(inner, place, str(tool.get("name", "")))
        else:
            offered.ignored.append(at)

    for number, tool in enumerate(given):
        take(tool, f"tools[{number}]", None)
    return offered


def _as_chat(request: ResponseRequest, said: Conversation, tools: OfferedTools) -> chat.ChatRequest:
    brought = bool(request.stored_tools or request.prompt)
    choice = tools.choose(request.tool_choice, stored=brought)
    shown = bool(request.top_logprobs) or LOGPROBS in (request.include or ())
    return chat.ChatRequest(
        model=request.model,
        models=request.models,
        messages=said.messages or None,
        prompt=request.prompt,
        stream=request.stream,
        max_completion_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        logprobs=shown or None,
        top_logprobs=request.top_logprobs if shown else None,
        tools=tools.tools or None,
        stored_tools=request.stored_tools,
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls if tools.tools or brought else None,
        response_format=_format(request.text),
        metadata=request.metadata,
        user=request.user,
        safety_identifier=request.safety_identifier,
        prompt_cache_key=request.prompt_cache_key,
        size_class=request.size_class,
        reasoning_effort=request.reasoning.effort if request.reasoning else None,
    )


def _format(text: TextOptions | None) -> structured.ResponseFormat | None:
    wanted = None if text is None else text.format
    if isinstance(wanted, FlatSchema):
        named = structured.NamedSchema(
            wanted.name, wanted.schema, wanted.description, wanted.strict
        )
        return structured.SchemaFormat(named)
    return wanted


def _renamed(refusal: Refusal, tools: OfferedTools) -> Refusal:
    """A refusal of a chat's field as one of the field that it came from."""
    was = param = refusal.param or ""
    found = _TOOL.match(param)
    # Behind those of the request stand stored ones.
    if found is not None and int(found[1]) < len(tools.places):
        param = param.replace(found[0], tools.places[int(found[1])], 1)
    for ours, theirs in (
        ("response_format.json_schema", "text.format"),
        ("response_format", "text.format"),
        ("max_completion_tokens", OUTPUT_FIELD),
        ("messages", "input"),
        ("tool_choice.function", "tool_choice"),
    ):
        if param.startswith(ours):
            param = param.replace(ours, theirs, 1)
    if was:
        refusal.param, refusal.message = param, refusal.message.replace(was, param)
    return refusal


def _echoed(given: dict[str, Any]) -> bytes:
    """What the answer repeats of the request, as the inside of a JSON object."""
    echoed = {
        name: default if (value := given.get(name)) is None else value
        for name, default in ECHOED.items()
    }
    return msgspec.json.encode(echoed)[1:-1]
