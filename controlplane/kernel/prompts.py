"""Stored prompt templates: messages with named, typed, bounded variables. Pure text, never code;
what a request that names one is asked with; and stored tools, which have the same life.

A placeholder is `{{name}}`; a backslash before two braces makes them text. Values are put in once
and read no further, so that nothing in them is a placeholder, and each stays inside the message
that has its place: roles and special tokens are the chat template's to make, not a message's.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

NAME_PATTERN = r"\A[a-z][a-z0-9_]{0,39}\Z"
MESSAGES_MAX = 32
VARIABLES_MAX = 32
CHOICES_MAX = 64
CHOICE_CHARS_MAX = 200
BODY_BYTES_MAX = 65_536
VALUE_CHARS_MAX = 400_000
CHARS_DEFAULT = 2_000
IN_ALL_DEFAULT = 100_000
NUMBER_MAX = 2**53
TOOLS_MAX = 32
STOPS_MAX = 16
TOOL_BYTES_MAX = 32_768
SCHEMA_BYTES_MAX = 32_768
BYTES_PER_TOKEN = 4
_MARKS = re.compile(
    r"(?P<literal>\\\{\{)|\{\{\s*(?P<name>[a-z][a-z0-9_]{0,39})\s*\}\}|(?P<bad>\{\{)"
)

# A published template whose text goes here when a draft is saved.
PARTIAL = re.compile(
    r"(?<!\\)\{\{>\s*(?P<name>[a-z0-9][a-z0-9_-]{0,63})(?::(?P<version>[0-9]{1,6}))?\s*\}\}"
)

Role = Literal["system", "user", "assistant"]
Number = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Choice = Annotated[str, Meta(min_length=1, max_length=CHOICE_CHARS_MAX)]
Value = str | int


class Variable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a request may fill in. Without `default` it must be given, unless not `required`.

    `chars_max` bounds a string, `least` and `most` an integer; a choice is one of `choices`.
    """

    name: Annotated[str, Meta(pattern=NAME_PATTERN)]
    type: Literal["string", "integer", "choice"] = "string"
    required: bool = True
    default: Value | None = None
    chars_max: Annotated[int, Meta(ge=1, le=VALUE_CHARS_MAX)] = CHARS_DEFAULT
    least: Number = -NUMBER_MAX
    most: Number = NUMBER_MAX
    choices: Annotated[tuple[Choice, ...], Meta(max_length=CHOICES_MAX)] = ()


class PromptMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message of a template; `content` may hold placeholders."""

    role: Role
    content: Annotated[str, Meta(min_length=1)]


class StoredTool(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A function that a model may call, by the name that it is stored under.

    `parameters` is a JSON schema of an object; without it the function takes none.
    """

    description: str = ""
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolName(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A stored tool; without `version` the one in force."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    version: Annotated[int, Meta(ge=1)] | None = None


Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class PromptParameters(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a request is asked with where it does not say it itself, as the API has these fields."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Share | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    stop: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=STOPS_MAX)] = []
    seed: Number | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    reasoning_effort: str | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: Literal["none", "auto", "required"] | None = None


NO_PARAMETERS = PromptParameters()


class PromptBody(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One version of a template, or with `tool` of a stored tool, which has nothing else.

    `values_chars_max` bounds all values of a request together. `model`, `parameters`, stored
    `tools` and `response_format` are what a request is asked with that says nothing else. Where
    messages have others put into them, `source` is how they were written.
    """

    messages: Annotated[tuple[PromptMessage, ...], Meta(max_length=MESSAGES_MAX)] = ()
    variables: Annotated[tuple[Variable, ...], Meta(max_length=VARIABLES_MAX)] = ()
    values_chars_max: Annotated[int, Meta(ge=1, le=VALUE_CHARS_MAX)] = IN_ALL_DEFAULT
    source: Annotated[tuple[PromptMessage, ...], Meta(max_length=MESSAGES_MAX)] = ()
    model: Annotated[str, Meta(max_length=100)] = ""
    parameters: PromptParameters = NO_PARAMETERS
    tools: Annotated[tuple[ToolName, ...], Meta(max_length=TOOLS_MAX)] = ()
    response_format: dict[str, Any] | None = None
    tool: StoredTool | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Fields of a request that it gives where they are not said."""
        found: dict[str, Any] = msgspec.to_builtins(self.parameters)
        if self.model:
            found["model"] = self.model
        if self.response_format is not None:
            found["response_format"] = self.response_format
        return found


class PromptProblem(NamedTuple):
    """What is wrong with a template, at its field; a warning keeps no one from publishing it."""

    field: str
    message: str
    warning: bool = False


class Hole(NamedTuple):
    """The place of a variable."""

    name: str


class BadValue(ValueError):
    """A value that its variable does not take; `name` is the variable's, `code` tells the kind."""

    def __init__(self, name: str, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.code = code


def pieces(content: str) -> Iterator[str | Hole]:
    """Fixed texts and holes, in order; braces that begin no placeholder are text."""
    at = 0
    for mark in _MARKS.finditer(content):
        if mark["bad"]:
            continue
        if at < mark.start():
            yield content[at : mark.start()]
        yield "{{" if mark["literal"] else Hole(mark["name"])
        at = mark.end()
    if at < len(content):
        yield content[at:]


def find_problems(body: PromptBody) -> list[PromptProblem]:
    """Errors, then what makes a template cache worse than it could."""
    if body.tool is not None:
        return list(_tool_problems(body, body.tool))
    found = [*_variable_problems(body), *_setting_problems(body)]
    declared = {each.name for each in body.variables}
    used: set[str] = set()
    for place, message in enumerate(body.messages):
        field = f"messages[{place}].content"
        for mark in _MARKS.finditer(message.content):
            if mark["bad"]:
                told = "'{{' begins no placeholder: write {{name}}, or \\{{ for the braces."
                found.append(PromptProblem(field, told))
            elif mark["name"] and mark["name"] not in declared:
                found.append(PromptProblem(field, f"Unknown variable '{mark['name']}'."))
        used |= {each.name for each in pieces(message.content) if isinstance(each, Hole)}
    for place, variable in enumerate(body.variables):
        if variable.name not in used:
            found.append(
                PromptProblem(f"variables[{place}]", "Is used in no message.", warning=True)
            )
    size = sum(len(message.content.encode()) for message in body.messages)
    if size > BODY_BYTES_MAX:
        found.append(PromptProblem("messages", f"Have {size} bytes; at most {BODY_BYTES_MAX}."))
    return found + _order_problems(body)


def tool_bytes(tool: StoredTool) -> int:
    """What it adds to every request that offers it, in bytes of JSON."""
    return len(msgspec.json.encode(tool))


def _tool_problems(body: PromptBody, tool: StoredTool) -> Iterator[PromptProblem]:
    if body != PromptBody(tool=tool):
        yield PromptProblem("tool", "A tool has no messages and nothing else beside it.")
    size = tool_bytes(tool)
    if size > TOOL_BYTES_MAX:
        yield PromptProblem("tool", f"Has {size} bytes; at most {TOOL_BYTES_MAX}.")
    if tool.parameters is not None and tool.parameters.get("type", "object") != "object":
        yield PromptProblem("tool.parameters.type", "Must be 'object'.")
    if not tool.description:
        told = "Models choose a tool by its description."
        yield PromptProblem("tool.description", told, warning=True)


def _setting_problems(body: PromptBody) -> Iterator[PromptProblem]:
    names = [one.id for one in body.tools]
    for place, name in enumerate(names):
        if name in names[:place]:
            yield PromptProblem(f"tools[{place}].id", f"'{name}' is there twice.")
    size = len(msgspec.json.encode(body.response_format))
    if size > SCHEMA_BYTES_MAX:
        told = f"Has {size} bytes; at most {SCHEMA_BYTES_MAX}."
        yield PromptProblem("response_format", told)


def stable_messages(body: PromptBody) -> tuple[PromptMessage, ...]:
    """What is the same in every request: all before the first variable. It is what caches."""
    kept: list[PromptMessage] = []
    for message in body.messages:
        parts = list(pieces(message.content))
        first = next((at for at, each in enumerate(parts) if isinstance(each, Hole)), None)
        if first is None:
            kept.append(PromptMessage(message.role, _joined(parts, {})))
            continue
        if first:
            kept.append(PromptMessage(message.role, _joined(parts[:first], {})))
        break
    return tuple(kept)


def stable_bytes(body: PromptBody) -> int:
    """Bytes of text before the first variable."""
    return sum(len(message.content.encode()) for message in stable_messages(body))


def fixed_bytes(body: PromptBody) -> int:
    """Bytes of all text that is no variable's."""
    return sum(len(each.encode()) for each in _parts(body) if isinstance(each, str))


def checked_values(body: PromptBody, given: Mapping[str, Value]) -> dict[str, str]:
    """The text of every variable; raises `BadValue`. What is not required may be empty."""
    known = {each.name: each for each in body.variables}
    for name in given:
        if name not in known:
            raise BadValue(name, f"The template has no variable '{name}'.", "unknown_parameter")
    values: dict[str, str] = {}
    for name, variable in known.items():
        value = given.get(name, variable.default)
        if value is None:
            if variable.required:
                told = f"The variable '{name}' must be given."
                raise BadValue(name, told, "missing_required_parameter")
            value = ""
        else:
            _check_value(variable, value)
        values[name] = str(value)
    if sum(map(len, values.values())) > body.values_chars_max:
        told = f"All values together may have at most {body.values_chars_max} characters."
        raise BadValue("", told)
    return values


def filled(body: PromptBody, values: Mapping[str, str]) -> tuple[PromptMessage, ...]:
    """The messages with every variable's text in its places."""
    return tuple(
        PromptMessage(message.role, _joined(pieces(message.content), values))
        for message in body.messages
    )


def filled_bytes(body: PromptBody, values: Mapping[str, str]) -> int:
    """How long `filled` is, in bytes, without making it."""
    sizes = {name: len(value.encode("utf-8", "replace")) for name, value in values.items()}
    return sum(
        sizes[each.name] if isinstance(each, Hole) else len(each.encode()) for each in _parts(body)
    )


def _parts(body: PromptBody) -> Iterator[str | Hole]:
    for message in body.messages:
        yield from pieces(message.content)


def _joined(parts: Iterator[str | Hole] | list[str | Hole], values: Mapping[str, str]) -> str:
    return "".join(values[each.name] if isinstance(each, Hole) else each for each in parts)


def _check_value(variable: Variable, value: Value) -> None:
    name = variable.name
    if variable.type == "integer":
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadValue(name, f"The variable '{name}' must be an integer.")
        if not variable.least <= value <= variable.most:
            told = f"The variable '{name}' must be {variable.least} to {variable.most}."
            raise BadValue(name, told)
        return
    if not isinstance(value, str):
        raise BadValue(name, f"The variable '{name}' must be a string.")
    if variable.type == "choice" and value not in variable.choices:
        told = f"The variable '{name}' must be one of: {', '.join(variable.choices)}."
        raise BadValue(name, told)
    if variable.type == "string" and len(value) > variable.chars_max:
        told = f"The variable '{name}' has {len(value)} characters; at most {variable.chars_max}."
        raise BadValue(name, told)


def _variable_problems(body: PromptBody) -> Iterator[PromptProblem]:
    seen: set[str] = set()
    for place, variable in enumerate(body.variables):
        field = f"variables[{place}]"
        if variable.name in seen:
            yield PromptProblem(f"{field}.name", f"'{variable.name}' is declared twice.")
        seen.add(variable.name)
        if (variable.type == "choice") != bool(variable.choices):
            yield PromptProblem(f"{field}.choices", "A choice has some; no other type has any.")
        if variable.least > variable.most:
            yield PromptProblem(f"{field}.least", "Is above 'most'.")
        if variable.default is not None:
            try:
                _check_value(variable, variable.default)
            except BadValue as error:
                yield PromptProblem(f"{field}.default", str(error))


def _order_problems(body: PromptBody) -> list[PromptProblem]:
    """Fixed text behind a variable never caches, because what is before it changes."""
    behind = fixed_bytes(body) - stable_bytes(body)
    if not behind or not body.variables:
        return []
    told = (
        f"{behind} bytes of fixed text stand behind the first variable and will not cache;"
        f" the {stable_bytes(body)} bytes before it will. Move fixed text to the front."
    )
    return [PromptProblem("messages", told, warning=True)]
