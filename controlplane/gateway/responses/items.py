"""Input items of a response as messages of a chat; what no message can hold is named as ignored.
Tools of a response as those of a chat, and back to how the client knows them.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from controlplane.gateway.openai import chat
from controlplane.gateway.openai import tools as chat_tools
from controlplane.gateway.openai.parse import named_error
from controlplane.gateway.refusal import bad_field

# A custom tool takes a text: its function has this one argument.
CUSTOM_INPUT = "input"
CUSTOM_SCHEMA = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string"}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}
TEXT_PARTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
OTHER_PARTS: dict[str, type[chat.AudioPart | chat.FilePart]] = {
    "input_audio": chat.AudioPart,
    "input_file": chat.FilePart,
}

Parts = Annotated[list[dict[str, Any]], Meta(max_length=chat.PARTS_MAX)]
Converted = TypeVar("Converted")


class FlatFunction(msgspec.Struct):
    """A function, or a custom tool, which has no parameters."""

    name: chat_tools.FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedChoice(msgspec.Struct):
    """`tool_choice` as an object: one tool, or some of them."""

    type: str
    name: str = ""
    mode: Literal["auto", "required"] = "auto"
    tools: Annotated[list[dict[str, Any]], Meta(max_length=chat_tools.TOOLS_MAX)] = []


class OfferedTools:
    """What a model may call. Tools that only OpenAI's servers run are in `ignored`.

    `namespaces` has the namespace of each function in one, `custom` the names of custom tools,
    `places` where each tool is in the request, `allowed` the names that the choice leaves, None for
    all.
    """

    def __init__(self) -> None:
        self.tools: list[chat_tools.Tool] = []
        self.places: list[str] = []
        self.ignored: list[str] = []
        self.namespaces: dict[str, str] = {}
        self.custom: list[str] = []
        self.allowed: frozenset[str] | None = None

    def add(self, kind: str, flat: FlatFunction, at: str, namespace: str | None) -> None:
        """A tool that a model may call; raises `Refusal` where there are too many."""
        if len(self.tools) == chat_tools.TOOLS_MAX:
            raise bad_field("tools", f"'tools' holds at most {chat_tools.TOOLS_MAX} functions.")
        parameters = CUSTOM_SCHEMA if kind == "custom" else flat.parameters
        function = chat_tools.Function(flat.name, flat.description, parameters, flat.strict)
        self.tools.append(chat_tools.Tool("function", function))
        self.places.append(at)
        if kind == "custom":
            self.custom.append(flat.name)
        if namespace is not None:
            self.namespaces[flat.name] = namespace

    def choose(self, given: str | NamedChoice | None, *, stored: bool) -> chat_tools.Choice | None:
        """The choice as a chat has it, where a tool is left, or some may be `stored`; of some of
        the tools only those are left.
        """
        if given is None or not (self.tools or stored):
            return None
        if isinstance(given, str):
            return given  # type: ignore[return-value]
        if given.type in ("function", "custom"):
            return chat_tools.ToolChoice("function", chat_tools.FunctionChoice(given.name))
        if given.type == "allowed_tools":
            self._only(frozenset(str(each.get("name")) for each in given.tools))
            return given.mode
        return "auto"

    def _only(self, names: frozenset[str]) -> None:
        self.allowed = names
        kept = [place for place, tool in enumerate(self.tools) if tool.function.name in names]
        self.tools = [self.tools[place] for place in kept]
        self.places = [self.places[place] for place in kept]


class MessageItem(msgspec.Struct):
    """A message; its type may be left out."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | Parts


class ImageInput(msgspec.Struct):
    """An image of a message, as a link or a data URL."""

    image_url: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None


class CallItem(msgspec.Struct):
    """A call of a function, or of a custom tool, whose input is a text."""

    call_id: chat_tools.CallId
    name: chat_tools.FunctionName
    arguments: str = ""
    input: str = ""


class OutputItem(msgspec.Struct):
    """What a call brought."""

    call_id: chat_tools.CallId
    output: str | Parts


class ReasoningItem(msgspec.Struct):
    """What the model thought; what others have sealed cannot be read."""

    summary: Parts = []
    content: Parts = []


class Conversation:
    """Messages made of items so far; `places` says of each which item it began with."""

    def __init__(self, instructions: str | None) -> None:
        self.messages: list[chat.Message] = []
        self.places: list[str] = []
        self.ignored: list[str] = []
        if instructions:
            self._say("instructions", chat.Message("system", instructions))

    def take(self, given: str | Sequence[Any], field: str = "input") -> None:
        """Add what the field holds; raises `Refusal` (400)."""
        if isinstance(given, str):
            self._say("input", chat.Message("user", given))
            return
        for number, item in enumerate(given):
            at = f"{field}[{number}]"
            if not isinstance(item, dict):
                raise bad_field(at, f"'{at}' must be an object.")
            self._take_item({name: each for name, each in item.items() if each is not None}, at)
        if len(self.messages) > chat.MESSAGES_MAX:
            raise bad_field("input", f"'input' holds at most {chat.MESSAGES_MAX} messages.")

    def _take_item(self, item: dict[str, Any], at: str) -> None:
        match item.get("type", "message"):
            case "message":
                message = converted(item, MessageItem, at)
                self._take_message(message, _content(message.content, f"{at}.content"), at)
            case "function_call" | "custom_tool_call" as kind:
                called = converted(item, CallItem, at)
                arguments = called.arguments
                if kind == "custom_tool_call":
                    arguments = msgspec.json.encode({CUSTOM_INPUT: called.input}).decode()
                call = chat_tools.ToolCall(
                    called.call_id, "function", chat_tools.CalledFunction(called.name, arguments)
                )
                calls = self._calls(at)
                if len(calls) == chat_tools.CALLS_MAX:
                    raise bad_field(at, f"A turn has at most {chat_tools.CALLS_MAX} calls.")
                calls.append(call)
            case "function_call_output" | "custom_tool_call_output":
                output = converted(item, OutputItem, at)
                content = _content(output.output, f"{at}.output")
                self._say(at, chat.Message("tool", content, tool_call_id=output.call_id))
            case "reasoning":
                thought = converted(item, ReasoningItem, at)
                parts = thought.content or thought.summary
                texts = (part.get("text") for part in parts)
                text = "".join(each for each in texts if isinstance(each, str))
                if text:
                    self._say(at, chat.Message("assistant", reasoning_content=text))
            case "item_reference":
                why = "Items cannot be referred to; send the item itself."
                raise bad_field(f"{at}.id", why, "unsupported_parameter")
            case _:
                self.ignored.append(at)

    def _take_message(self, item: MessageItem, content: str | list[chat.Part], at: str) -> None:
        last = self.messages[-1] if self.messages else None
        thinks = last is not None and not (last.content or last.tool_calls)
        if last is not None and thinks and item.role == last.role == "assistant":
            last.content = content
        else:
            self._say(at, chat.Message(item.role, content))

    def _calls(self, at: str) -> list[chat_tools.ToolCall]:
        """Those of the assistant whose turn it is, or of one that says nothing else."""
        if not self.messages or self.messages[-1].role != "assistant":
            self._say(at, chat.Message("assistant", ""))
        speaker = self.messages[-1]
        if speaker.tool_calls is None:
            speaker.tool_calls = []
        return speaker.tool_calls

    def _say(self, at: str, message: chat.Message) -> None:
        self.messages.append(message)
        self.places.append(at)


def converted(value: object, kind: type[Converted], at: str) -> Converted:
    """A value of the type; raises `Refusal` (400) that names the field below `at`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        path = text if " - at `" in text else f"{text} - at `$`"
        raise named_error(path.replace("$", f"$.{at}", 1)) from error


def _content(given: str | list[dict[str, Any]], at: str) -> str | list[chat.Part]:
    """Parts as those of a chat; what a model cannot read is refused there, by its place."""
    if isinstance(given, str):
        return given
    parts: list[chat.Part] = []
    for number, part in enumerate(given):
        kind = str(part.get("type"))
        text = part.get("refusal") if kind == "refusal" else part.get("text")
        field = f"{at}[{number}]"
        if kind in OTHER_PARTS:
            parts.append(OTHER_PARTS[kind]())
        elif kind == "input_image":
            shown = converted(part, ImageInput, field)
            if shown.image_url is None:
                raise bad_field(f"{field}.image_url", "Files are not stored; send 'image_url'.")
            parts.append(chat.ImagePart(chat.ImageUrl(shown.image_url, shown.detail)))
        elif (kind in TEXT_PARTS or kind == "refusal") and isinstance(text, str):
            parts.append(chat.TextPart(text))
        else:
            raise bad_field(field, f"'{field}' must be a part of the type 'input_text'.")
    return parts or ""
