"""`tools` and what belongs to them: the functions offered, the calls in messages, the grammar."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from controlplane.gateway.ask import ToolUse
from controlplane.gateway.openai.parse import DEPTH_MAX, NAME_PATTERN, check_counts, nests_too_deep
from controlplane.gateway.openai.structured import WantedFormat, bounded, check_schema, closed
from controlplane.gateway.refusal import bad_field
from controlplane.gateway.s1_admission.helpers.offload import LARGE_BYTES
from controlplane.gateway.toolform import WantedCalls, calls_grammar, json_rule
from inference.contract.grammar import JSON_WHITESPACE

TOOLS_MAX = 128
CALLS_MAX = 128
CALL_ID_CHARS_MAX = 128

FunctionName = Annotated[str, Meta(pattern=NAME_PATTERN)]
CallId = Annotated[str, Meta(min_length=1, max_length=CALL_ID_CHARS_MAX)]


class Function(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A function that a model may call; without `parameters` it takes none."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, forbid_unknown_fields=True):
    """One entry of `tools`."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"cache_control"})
    type: Literal["function"]
    function: Function


class FunctionChoice(msgspec.Struct, forbid_unknown_fields=True):
    """The name in a named `tool_choice`."""

    name: FunctionName


class ToolChoice(msgspec.Struct, forbid_unknown_fields=True):
    """`tool_choice` that names a function."""

    type: Literal["function"]
    function: FunctionChoice


class CalledFunction(msgspec.Struct, forbid_unknown_fields=True):
    """What was called; `arguments` is JSON text."""

    name: FunctionName
    arguments: str


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call in a message of the assistant."""

    HARMLESS: ClassVar[frozenset[str]] = frozenset({"index", "provider_specific_fields"})
    id: CallId
    type: Literal["function"]
    function: CalledFunction


Tools = Annotated[list[Tool], Meta(max_length=TOOLS_MAX)]
ToolCalls = Annotated[list[ToolCall], Meta(max_length=CALLS_MAX)]
Choice = Literal["none", "auto", "required"] | ToolChoice


def offered(tools: list[Tool] | None, choice: Choice | None) -> tuple[dict[str, Any], ...]:
    """The tools as templates read them, none where none may be called; raises `Refusal` (400)."""
    if not tools:
        if choice not in (None, "none", "auto"):
            raise bad_field("tool_choice", "'tool_choice' needs 'tools'.")
        return ()
    names = [tool.function.name for tool in tools]
    for place, tool in enumerate(tools):
        if names.index(tool.function.name) != place:
            at = f"tools[{place}].function.name"
            raise bad_field(at, f"'{at}' is already the name of another function.")
        check_parameters(tool, f"tools[{place}].function.parameters")
    if isinstance(choice, ToolChoice) and choice.function.name not in names:
        at = "tool_choice.function.name"
        raise bad_field(at, f"'{at}' is not the name of one of the 'tools'.")
    return () if choice == "none" else tuple(map(msgspec.to_builtins, map(shown_tool, tools)))


def wanted_calls(
    tools: Sequence[Tool], choice: Choice | None, *, many: bool, content: WantedFormat | None
) -> WantedFormat:
    """The grammar of calls in Hermes' form, and of what may stand in their place; raises `Refusal`
    (400).
    """
    named = choice.function.name if isinstance(choice, ToolChoice) else None
    calls = WantedCalls(
        {
            tool.function.name: closed(_parameters(tool))
            for tool in tools
            if named in (None, tool.function.name)
        },
        must_call=choice == "required" or named is not None,
        many=many and named is None,
        content=_content_rule(content),
    )
    wanted = bounded("lark", calls_grammar(calls), "tools")
    return msgspec.structs.replace(wanted, calls=calls)


def tool_uses(calls: Sequence[ToolCall], field: str) -> tuple[ToolUse, ...]:
    """Calls of a message, with their arguments read; raises `Refusal` (400)."""
    return tuple(
        ToolUse(
            call.id,
            call.function.name,
            _arguments(call.function.arguments, f"{field}[{place}].function.arguments"),
        )
        for place, call in enumerate(calls)
    )


def _content_rule(content: WantedFormat | None) -> str | None:
    if content is None:
        return None
    if content.grammar.kind == "json_object":
        return json_rule({"type": "object"}, JSON_WHITESPACE)
    if content.grammar.kind == "json_schema":
        return json_rule(json.loads(content.grammar.source), JSON_WHITESPACE)
    raise bad_field(content.field, f"'{content.field}' cannot be combined with 'tools'.")


def check_parameters(tool: Tool, field: str) -> None:
    """Raises `Refusal` (400) unless they are the schema of an object."""
    check_schema(_parameters(tool), field)
    if _parameters(tool)["type"] != "object":
        raise bad_field(f"{field}.type", f"'{field}.type' must be 'object'.")


def _parameters(tool: Tool) -> dict[str, Any]:
    given = tool.function.parameters
    if not given:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return {"type": "object", **given}


def shown_tool(tool: Tool) -> dict[str, Any]:
    """As chat templates read it."""
    function = tool.function
    shown: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        shown["description"] = function.description
    shown["parameters"] = function.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": shown}


def _arguments(text: str, field: str) -> dict[str, Any]:
    # It came inside a string, where the body's own bounds do not see it.
    if len(text) > LARGE_BYTES:
        check_counts(text.encode("utf-8", "replace"), field)
    if nests_too_deep(text):
        raise bad_field(field, f"'{field}' nests deeper than {DEPTH_MAX} levels.")
    try:
        read = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError as error:
        raise bad_field(field, f"'{field}' is not valid JSON.") from error
    if not isinstance(read, dict):
        raise bad_field(field, f"'{field}' must be a JSON object.")
    return read
