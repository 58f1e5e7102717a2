"""Render chat messages to one prompt text with the model's own Jinja template.

A template comes from a node. It is not reviewed: what protects is that a node needs a credential
that names its models, and that its template runs in a sandbox with bounded steps, time and sizes.
Besides plain Jinja it offers what published templates use: `raise_exception`, break and continue,
`{% generation %}`, `strftime_now`, which gives only the day, and a `tojson` that writes JSON and
no HTML.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from jinja2 import TemplateError, meta

from inference.text.allowance import Rendering
from inference.text.flow import only_prints
from inference.text.frames import Frames
from inference.text.sandbox import BoundedEnvironment

PROMPT_CHARS_MAX = 16 * 1024 * 1024
TOO_LONG = f"over {PROMPT_CHARS_MAX} characters of prompt"
TEMPLATE_CHARS_MAX = 128 * 1024
TOOL_CALL_TAG = "<tool_call>"
# What the expressions of a template can raise besides Jinja's own errors.
TEMPLATE_FAULTS = (
    TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip


class TemplateFailed(ValueError):
    """The template refused these messages, or is not a template."""


class ChatMessage(TypedDict):
    """One message as templates read it."""

    role: str
    content: str
    tool_calls: NotRequired[list[dict[str, Any]]]
    tool_call_id: NotRequired[str]
    reasoning_content: NotRequired[str]


class ChatTemplate:
    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        if len(source) > TEMPLATE_CHARS_MAX:
            raise TemplateFailed(f"chat_template: over {TEMPLATE_CHARS_MAX} characters")
        try:
            self._template = BoundedEnvironment().bounded(source)
        except (TemplateError, RecursionError, SyntaxError) as error:
            raise TemplateFailed(f"chat_template: {error}") from error
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        # Looking for names changes the tree, so each search gets one of its own.
        parse = BoundedEnvironment().parse
        # Of the forms in which models write calls only this one is read back.
        names = meta.find_undeclared_variables(parse(source))
        self.shows_tools = "tools" in names and TOOL_CALL_TAG in source
        self.frames = Frames(self._rendered) if only_prints(parse(source)) else None

    def render(
        self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """The prompt up to where the assistant begins to speak; raises `TemplateFailed`."""
        if self.frames is not None and not tools:
            prompt = self.frames.filled(messages)
            if prompt is not None:
                if len(prompt) > PROMPT_CHARS_MAX:
                    raise TemplateFailed(f"messages: {TOO_LONG}")
                return prompt
        return self._rendered(messages, tools)

    def _rendered(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        try:
            with Rendering():
                return self._joined(messages, list(tools) or None)
        except TEMPLATE_FAULTS as error:
            raise TemplateFailed(f"messages: {error}") from error

    def _joined(
        self, messages: Sequence[Mapping[str, Any]], tools: list[Mapping[str, Any]] | None
    ) -> str:
        parts: list[str] = []
        room = PROMPT_CHARS_MAX
        for part in self._template.generate(
            messages=messages, tools=tools, add_generation_prompt=True, **self._tokens
        ):
            parts.append(part)
            room -= len(part)
            if room < 0:
                raise TemplateError(TOO_LONG)
        return "".join(parts)
