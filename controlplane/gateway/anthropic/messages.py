"""`POST /v1/messages` and `/v1/messages/count_tokens`: their requests."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.ask import Ask, Picture, StoredParts, ToolUse, Turn
from controlplane.gateway.openai import tools as openai
from controlplane.gateway.openai.chat import MESSAGES_MAX
from controlplane.gateway.openai.fields import (
    Count,
    Fallbacks,
    KeptText,
    LabelName,
    Name,
    Share,
    StopString,
    StoredTools,
)
from controlplane.gateway.openai.parse import parse_body
from controlplane.gateway.openai.structured import (
    NamedSchema,
    SchemaFormat,
    followable,
    schema_grammar,
)
from controlplane.gateway.openai.tolerant import IGNORED_MAX, LeftOut
from controlplane.gateway.openai.tools import CallId, FunctionName, Tool
from controlplane.gateway.refusal import bad_field
from inference.contract.frames import Sampling

BLOCKS_MAX = 512
# What one block says and the next are lines of one text.
BETWEEN = "\n"
# A block of an agent's system prompt that differs from talk to talk: no prefix would be cached.
CLIENT_HEADER = "x-anthropic-billing-header:"
STOP_SEQUENCES_MAX = 16
# Fields of the API that change nothing here.
IGNORED = (
    "cache_control", "container", "context_management", "mcp_servers", "service_tier",
)  # fmt: skip
# Anthropic's widest effort has another name elsewhere.
EFFORTS = {"max": "xhigh"}
EFFORT_DEFAULT = "medium"
_CHOICES: dict[str, openai.Choice] = {"auto": "auto", "any": "required", "none": "none"}


class TextBlock(msgspec.Struct, tag="text", tag_field="type"):
    """A piece of text."""

    text: str


class ImageSource(msgspec.Struct):
    """An image itself, or a link to it."""

    type: Literal["base64", "url"]
    media_type: str = ""
    data: str = ""
    url: str = ""


class ImageBlock(msgspec.Struct, tag="image", tag_field="type"):
    """An image, for a model that sees."""

    source: ImageSource


class ThinkingBlock(msgspec.Struct, tag="thinking", tag_field="type"):
    """What a model thought. Nothing here signs or verifies it."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlock(msgspec.Struct, tag="redacted_thinking", tag_field="type"):
    """Thoughts that only their own provider can read; left out."""


class ToolUseBlock(msgspec.Struct, tag="tool_use", tag_field="type"):
    """A call of a tool."""

    id: CallId
    name: FunctionName
    input: dict[str, Any]


Texts = Annotated[list[TextBlock], Meta(max_length=BLOCKS_MAX)]
Shown = Annotated[list[TextBlock | ImageBlock], Meta(max_length=BLOCKS_MAX)]


class ToolResultBlock(msgspec.Struct, tag="tool_result", tag_field="type"):
    """What came of a call."""

    tool_use_id: CallId
    content: str | Shown | None = None
    is_error: bool | None = None


Block = (
    TextBlock | ImageBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock
)


class InputMessage(msgspec.Struct):
    """One message; those of the system may also stand between the others."""

    role: Literal["user", "assistant", "system"]
    content: str | Annotated[list[Block], Meta(max_length=BLOCKS_MAX)]


class ToolDefinition(msgspec.Struct):
    """A tool of the client; one with a `type` of its own is for its provider's models alone."""

    name: FunctionName
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class ToolUseChoice(msgspec.Struct):
    """Whether tools may or must be called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct):
    """Whether to think before the answer."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Count | None = None


class OutputFormat(msgspec.Struct):
    """JSON that validates."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct):
    """How much to think, and what the answer has to match."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class CountRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What may also be sent to have a prompt counted: all but the bound of an answer."""

    model: Name
    models: Fallbacks | None = None
    messages: Annotated[list[InputMessage], Meta(min_length=1, max_length=MESSAGES_MAX)]
    system: str | Texts | None = None
    tools: Annotated[list[ToolDefinition], Meta(max_length=openai.TOOLS_MAX)] | None = None
    stored_tools: StoredTools | None = None
    tool_choice: ToolUseChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    stream: bool | None = None
    stop_sequences: Annotated[list[StopString], Meta(max_length=STOP_SEQUENCES_MAX)] | None = None
    temperature: Share | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    metadata: dict[LabelName, KeptText | None] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: dict[str, Any] | None = None
    container: Any = None
    context_management: dict[str, Any] | None = None
    mcp_servers: list[dict[str, Any]] | None = None


class CountedTokens(msgspec.Struct):
    """How long a prompt is."""

    input_tokens: int


class MessagesRequest(CountRequest, kw_only=True):
    """The body of a message to create."""

    max_tokens: Count


# Blocks that only messages of one role may have.
_OF_ROLE = {
    ThinkingBlock: "assistant", RedactedThinkingBlock: "assistant", ToolUseBlock: "assistant",
    ToolResultBlock: "user", ImageBlock: "user",
}  # fmt: skip
_decoder = msgspec.json.Decoder(MessagesRequest)
_count_decoder = msgspec.json.Decoder(CountRequest)


def parse(data: bytes) -> Ask:
    """Body bytes to an `Ask`; raises `Refusal`."""
    request, left = parse_body(data, _decoder)
    if request.messages[-1].role == "assistant":
        field = f"messages[{len(request.messages) - 1}].role"
        message = f"'{field}' must not be 'assistant': no served model continues a given answer."
        raise bad_field(field, message)
    return _found(request, left, len(data), request.max_tokens)


def parse_count(data: bytes) -> Ask:
    """The same of a body whose prompt is to be counted."""
    return _found(*parse_body(data, _count_decoder), len(data), None)


def _found(request: CountRequest, left: LeftOut, size: int, output_tokens: int | None) -> Ask:
    """Of one that names stored tools little is read yet: the rest by its `again`."""
    if not request.stored_tools:
        return _ask(request, left, size, output_tokens)

    def again(stored: StoredParts) -> Ask:
        found = [
            ToolDefinition(
                one["name"],
                description=one.get("description"),
                input_schema=one.get("parameters") or {"type": "object", "properties": {}},
                strict=one.get("strict"),
            )
            for one in stored.tools
        ]
        whole = msgspec.structs.replace(request, tools=[*(request.tools or []), *found])
        return _ask(whole, left, size, output_tokens)

    return Ask(
        operation="chat",
        model=request.model,
        stream=bool(request.stream),
        bytes=size,
        stored_tools=tuple(request.stored_tools),
        unknown=left.unknown,
        again=again,
    )


def _ask(request: CountRequest, left: LeftOut, size: int, output_tokens: int | None) -> Ask:
    ignored = [name for name in IGNORED if getattr(request, name) is not None]
    config, wanted = request.output_config or OutputConfig(), None
    labels = {name: text for name, text in (request.metadata or {}).items() if text is not None}
    passed: dict[str, Any] = {}
    effort = _effort(request.thinking, config.effort)
    if effort is not None:
        passed["reasoning_effort"] = effort
    if config.format is not None:
        wanted = schema_grammar(config.format.schema, "output_config.format.schema")
        named = NamedSchema(name="answer", schema=config.format.schema)
        passed["response_format"] = SchemaFormat(json_schema=named)
    named_tools = _tools(request.tools or [], ignored)
    tools = [tool for tool, _ in named_tools.values()]
    wish = request.tool_choice or ToolUseChoice("auto")
    if (wish.type == "tool" and wish.name not in named_tools) or (wish.type == "any" and not tools):
        raise bad_field("tool_choice", "'tool_choice' does not name one of the 'tools'.")
    named_choice = openai.ToolChoice("function", openai.FunctionChoice(wish.name or ""))
    choice, many = _CHOICES.get(wish.type, named_choice), not wish.disable_parallel_tool_use
    if tools:
        passed |= {"tools": tools, "tool_choice": choice, "parallel_tool_calls": many}
    if tools and choice != "none":
        held = [follows for _, follows in named_tools.values()]
        wanted = openai.wanted_calls(held, choice, many=many, content=wanted)
    return Ask(
        operation="chat",
        model=request.model,
        fallbacks=tuple(request.models or ()),
        stream=bool(request.stream),
        include_usage=True,
        sampling=Sampling(
            max_tokens=0,
            temperature=1.0 if request.temperature is None else request.temperature,
            top_p=request.top_p or 1.0,
            top_k=request.top_k or 0,
            grammar=wanted.grammar if wanted else None,
        ),
        output_tokens=output_tokens,
        stop=tuple(request.stop_sequences or ()),
        bytes=size,
        turns=_turns(request.messages, request.system or ""),
        tools=() if choice == "none" else tuple(map(openai.shown_tool, tools)),
        calls=wanted.calls if wanted else None,
        grammar_field=wanted.field if wanted else "",
        passed=msgspec.to_builtins(passed),
        ignored=(*left.ignored, *ignored)[:IGNORED_MAX],
        unknown=left.unknown,
        effort=effort,
        effort_field="thinking",
        caps_output=True,
        user=labels.pop("user_id", ""),
        labels=labels,
    ).seeing()


def _effort(thinking: Thinking | None, effort: str | None) -> str | None:
    if thinking is not None and thinking.type == "disabled":
        return "none"
    if thinking is not None and effort is None:
        return EFFORT_DEFAULT
    return EFFORTS.get(effort or "", effort)


def _tools(given: list[ToolDefinition], ignored: list[str]) -> dict[str, tuple[Tool, Tool]]:
    """Each as it is, and what of it grammars hold to: all of its schema only where it is strict."""
    tools: dict[str, tuple[Tool, Tool]] = {}
    for place, each in enumerate(given):
        at, schema = f"tools[{place}]", each.input_schema
        if each.type not in (None, "custom"):
            ignored.append(at)
            continue
        if each.name in tools:
            raise bad_field(f"{at}.name", f"'{at}.name' is already the name of another tool.")
        at += ".input_schema"
        if schema is None:
            raise bad_field(at, f"Missing parameter: '{at}'.", "missing_required_parameter")
        shown = openai.Function(each.name, each.description, schema)
        held = openai.Function(each.name, None, schema if each.strict else followable(schema))
        tools[each.name] = Tool("function", shown), Tool("function", held)
        openai.check_parameters(tools[each.name][1], at)
    return tools


def _turns(messages: list[InputMessage], system: str | list[TextBlock]) -> tuple[Turn, ...]:
    """The turns, one for each result of a tool; raises `Refusal` (400)."""
    if not isinstance(system, str):
        system = [one for one in system if not one.text.startswith(CLIENT_HEADER)]
    turns = [Turn("system", _joined(system))] if system else []
    called: set[str] = set()
    for place, message in enumerate(messages):
        said = message.content
        blocks: list[Block] = [TextBlock(said)] if isinstance(said, str) else said
        turns += _read(message.role, blocks, f"messages[{place}].content", called)
    return tuple(turns)


def _read(role: str, blocks: list[Block], at: str, called: set[str]) -> list[Turn]:
    """Results of tools come first, as they answer the calls right before them; what these show
    the user shows.
    """
    turns: list[Turn] = []
    texts: list[str] = []
    pictures: list[Picture] = []
    thoughts: list[str] = []
    calls: list[ToolUse] = []
    for number, block in enumerate(blocks):
        field = f"{at}[{number}]"
        if _OF_ROLE.get(type(block), role) != role:
            needed = _OF_ROLE[type(block)]
            raise bad_field(field, f"'{field}' needs a message of the role '{needed}'.")
        match block:
            case TextBlock():
                texts.append(block.text)
            case ImageBlock():
                pictures.append(_picture(block, field, len(BETWEEN.join(texts))))
            case ThinkingBlock():
                thoughts.append(block.thinking)
            case ToolUseBlock():
                calls.append(ToolUse(block.id, block.name, block.input))
                called.add(block.id)
            case ToolResultBlock():
                turns.append(_result(block, f"{field}.tool_use_id", called))
                shown = block.content if isinstance(block.content, list) else []
                pictures += [
                    _picture(each, f"{field}.content[{place}]", len(BETWEEN.join(texts)))
                    for place, each in enumerate(shown)
                    if isinstance(each, ImageBlock)
                ]
    if texts or pictures or not turns:
        thought, text = BETWEEN.join(thoughts) or None, BETWEEN.join(texts)
        turns.append(Turn(role, text, tuple(calls), None, thought, tuple(pictures)))
    return turns


def _picture(block: ImageBlock, field: str, place: int) -> Picture:
    source = block.source
    link = f"data:{source.media_type};base64,{source.data}"
    return Picture(place, field, source.url if source.type == "url" else link)


def _result(block: ToolResultBlock, field: str, called: set[str]) -> Turn:
    if block.tool_use_id not in called:
        raise bad_field(field, f"'{field}' is not the id of a call in an earlier message.")
    text = _joined(block.content or "")
    # Chat templates have no other place for it.
    return Turn("tool", f"Error: {text}" if block.is_error else text, call_id=block.tool_use_id)


def _joined(said: str | Sequence[TextBlock | ImageBlock]) -> str:
    if isinstance(said, str):
        return said
    return BETWEEN.join([block.text for block in said if isinstance(block, TextBlock)])
