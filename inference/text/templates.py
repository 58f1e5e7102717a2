"""The chat templates of one model, found as `transformers` finds them.

A model has one, or several by name, of which `default` and, with tools, `tool_use` are rendered.
Template files win over what the tokenizer's configuration holds.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inference.contract.assets import CONFIG_FILE, TEMPLATE_FILE, TOOL_TEMPLATE_FILE
from inference.text.chat import ChatMessage, ChatTemplate, TemplateFailed
from inference.text.families import CallForm
from inference.text.frames import NO_VARIABLES

DEFAULT, TOOL_USE = "default", "tool_use"
TRIAL = ChatMessage(role="user", content="Hello")
NOTHING = {"type": "object", "properties": {}}
TRIAL_FUNCTION = {"name": "f", "description": "", "parameters": NOTHING}
TRIAL_TOOL = {"type": "function", "function": TRIAL_FUNCTION}


class TextFilesBroken(ValueError):
    """A tokenizer file that cannot be used; the message names it."""


class ChatTemplates:
    """What renders messages; without `default` the model does not chat."""

    def __init__(self, default: ChatTemplate | None, tool_use: ChatTemplate | None) -> None:
        self._default = default
        self._tool_use = tool_use or default

    @property
    def chats(self) -> bool:
        """Whether the model has a chat template."""
        return self._default is not None

    @property
    def shows_tools(self) -> bool:
        """Whether the template shows tools to the model, and how to call them."""
        return self._tool_use is not None and self._tool_use.shows_tools

    @property
    def form(self) -> CallForm | None:
        """How the model calls tools, where its template shows it."""
        return self._tool_use.form if self._tool_use is not None else None

    @property
    def shows_reasoning(self) -> bool:
        """Whether a template reads what the assistant thought in earlier turns."""
        return any(each and each.shows_reasoning for each in (self._default, self._tool_use))

    def variables(self, *, tools: bool) -> frozenset[str]:
        """Names that a request may give values, with tools or without."""
        template = self._tool_use if tools else self._default
        return frozenset() if template is None else template.variables

    def render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> str:
        """Messages to prompt text; raises `TemplateFailed`, LookupError without a template."""
        template = self._tool_use if tools else self._default
        if template is None:
            raise LookupError("the model has no chat template")
        return template.render(messages, tools, variables)

    def fault(self) -> str:
        """Why a greeting, or one with a tool, cannot be rendered; empty where it can."""
        try:
            if self.chats:
                self.render([TRIAL])
            if self.shows_tools:
                self.render([TRIAL], [TRIAL_TOOL])
        except TemplateFailed as error:
            return str(error)
        return ""


def chat_templates(files: Mapping[str, bytes]) -> ChatTemplates:
    """Compile what is there; raises `TextFilesBroken`, `TemplateFailed`."""
    try:
        config = json.loads(files[CONFIG_FILE])
    except ValueError as error:
        raise TextFilesBroken(f"{CONFIG_FILE}: {error}") from error
    if not isinstance(config, dict):
        raise TextFilesBroken(f"{CONFIG_FILE}: not an object")
    tokens = {name: _token(config, name) for name in ("bos_token", "eos_token")}
    sources = _in_files(files) or _in_config(config)
    default, tool_use = (
        ChatTemplate(sources[name], **tokens) if name in sources else None
        for name in (DEFAULT, TOOL_USE)
    )
    return ChatTemplates(default, tool_use)


def _in_files(files: Mapping[str, bytes]) -> dict[str, str]:
    found = {}
    for name, file in ((DEFAULT, TEMPLATE_FILE), (TOOL_USE, TOOL_TEMPLATE_FILE)):
        try:
            if file in files:
                found[name] = files[file].decode()
        except UnicodeDecodeError as error:
            raise TextFilesBroken(f"{file}: {error.reason}") from error
    return found


def _in_config(config: Mapping[str, Any]) -> dict[str, str]:
    """One text is the default; a list names each of its templates."""
    given = config.get("chat_template")
    if given is None:
        return {}
    if isinstance(given, str):
        return {DEFAULT: given}
    try:
        return msgspec.convert({each["name"]: each["template"] for each in given}, dict[str, str])
    except (TypeError, LookupError, msgspec.ValidationError) as error:
        broken = f"{CONFIG_FILE}: chat_template is neither a text nor a list of named ones"
        raise TextFilesBroken(broken) from error


def _token(config: Mapping[str, object], name: str) -> str:
    value = config.get(name) or ""
    if isinstance(value, dict):
        value = value.get("content", "")
    return value if isinstance(value, str) else ""
